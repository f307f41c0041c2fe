#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace train_moe {

/// One rank's end of a group of ranks, whether they are threads or processes: one type, so that all else is compiled once. A
/// handle, cheap to copy. Calls are collective and throw when one of the ranks fails.
class rank_communicator {
public:
  template <class End>
  requires(!std::same_as<End, rank_communicator>) rank_communicator(End end)
      : end_(std::make_shared<adapted<End>>(std::move(end))) {}

  int rank() const { return end_->rank(); }
  int ranks() const { return end_->ranks(); }
  void barrier() { end_->barrier(); }
  void exchange_counts(int const* send_rows, int* counts) { end_->exchange_counts(send_rows, counts); }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    end_->all_to_all(send, send_rows, receive, receive_rows, row_bytes);
  }
  /// `count` elements of every rank, in rank order.
  template <class Element> void all_gather(Element const* send, std::size_t count, Element* receive) {
    static_assert(std::is_trivially_copyable_v<Element>);
    end_->all_gather_bytes(send, count * sizeof(Element), receive);
  }
  /// Sums in rank order.
  void all_reduce(float* data, std::size_t count) { end_->all_reduce(data, count); }
  void all_reduce(double* data, std::size_t count) { end_->all_reduce(data, count); }
  /// Of a modelled link, 0 where there is none.
  double modelled_us() const { return end_->modelled_us(); }

private:
  struct any_end {
    virtual ~any_end() = default;
    virtual int rank() = 0;
    virtual int ranks() = 0;
    virtual void barrier() = 0;
    virtual void exchange_counts(int const* send_rows, int* counts) = 0;
    virtual void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                            std::size_t row_bytes) = 0;
    virtual void all_gather_bytes(void const* send, std::size_t bytes, void* receive) = 0;
    virtual void all_reduce(float* data, std::size_t count) = 0;
    virtual void all_reduce(double* data, std::size_t count) = 0;
    virtual double modelled_us() = 0;
  };
  template <class End> struct adapted : any_end {
    explicit adapted(End of) : end(std::move(of)) {}
    int rank() override { return end.rank(); }
    int ranks() override { return end.ranks(); }
    void barrier() override { end.barrier(); }
    void exchange_counts(int const* send_rows, int* counts) override {
      end.exchange_counts(send_rows, counts);
    }
    void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                    std::size_t row_bytes) override {
      end.all_to_all(send, send_rows, receive, receive_rows, row_bytes);
    }
    void all_gather_bytes(void const* send, std::size_t bytes, void* receive) override {
      end.all_gather_bytes(send, bytes, receive);
    }
    void all_reduce(float* data, std::size_t count) override { end.all_reduce(data, count); }
    void all_reduce(double* data, std::size_t count) override { end.all_reduce(data, count); }
    double modelled_us() override {
      if constexpr (requires { end.modelled_us(); })
        return end.modelled_us();
      else
        return 0;
    }
    End end;
  };

  std::shared_ptr<any_end> end_;
};

/// What every rank has, which need not be of one size; on every rank.
template <class Item>
std::vector<std::vector<Item>> gather_all(std::vector<Item> const& mine, rank_communicator& ranks) {
  static_assert(std::is_trivially_copyable_v<Item>);
  auto const all = static_cast<std::size_t>(ranks.ranks());
  std::size_t const count = mine.size();
  std::vector<std::size_t> counts(all);
  ranks.all_gather(&count, 1, counts.data());
  std::size_t const most = *std::max_element(counts.begin(), counts.end());
  auto padded = mine;
  padded.resize(most);
  std::vector<Item> received(most * all);
  ranks.all_gather(padded.data(), most, received.data());
  std::vector<std::vector<Item>> found;
  for (std::size_t rank = 0; rank < all; ++rank) {
    auto const* begin = received.data() + rank * most;
    found.emplace_back(begin, begin + counts[rank]);
  }
  return found;
}

} // namespace train_moe
