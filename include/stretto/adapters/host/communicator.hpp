#pragma once

#include <stretto/adapters/host/domain.hpp>

#include <cstring>
#include <thread>
#include <type_traits>

namespace stretto {
inline namespace v0 {
namespace host {

/// One rank's end of a `domain`: the collective calls of ranks that are threads of this process. Models `row_exchange`.
/// A handle, cheap to copy; of one rank, one thread at a time may be in a call. Every call is collective and blocks
/// until all ranks have made it; it throws `communicator_error` when the group fails, when a rank does not come before
/// the deadline, and when the ranks' calls do not fit together. Nothing is allocated unless it throws.
class communicator {
public:
  communicator(domain& of, int member) : domain_(&of), member_(member) {}

  /// Place among the ranks of this communicator.
  int rank() const noexcept { return member_; }
  int ranks() const noexcept { return domain_->size(); }

  void barrier() { call const all(*this, {operation::barrier}); }

  /// `counts[s]` becomes what rank s has in `send_rows[rank()]`: how many rows of it will come here.
  void exchange_counts(int const* send_rows, int* counts) {
    call const all(*this,
                   {operation::exchange_counts, send_rows, static_cast<std::size_t>(ranks()) * sizeof(int)});
    for (int from = 0; from < ranks(); ++from)
      counts[from] = static_cast<int const*>(all[from].data)[member_];
  }

  /// Rows of `row_bytes` bytes: those for rank d lie at `send` behind those for the ranks before d, those from rank s
  /// come to `receive` behind those from the ranks before s. The own rows are copied too. `send` and `receive` must not
  /// overlap. With a modelled link the call takes at least as long as the model says.
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    clock::time_point start;
    {
      call const all(*this, {operation::all_to_all, send, row_bytes, send_rows, receive_rows});
      start = domain_->start();
      auto* to = static_cast<std::byte*>(receive);
      for (int from = 0; from < ranks(); ++from) {
        std::size_t const skipped = rows(all[from].send_rows, member_);
        std::size_t const bytes = static_cast<std::size_t>(receive_rows[from]) * row_bytes;
        if (bytes == 0) continue;
        std::memcpy(to, static_cast<std::byte const*>(all[from].data) + skipped * row_bytes, bytes);
        to += bytes;
      }
    }
    if (domain_->link().present())
      pass_link(start, others(send_rows) * row_bytes, others(receive_rows) * row_bytes);
  }

  /// `count` elements of every rank, in rank order, at `receive`.
  template <class Element> void all_gather(Element const* send, std::size_t count, Element* receive) {
    static_assert(std::is_trivially_copyable_v<Element>);
    all_gather_bytes(send, count * sizeof(Element), receive);
  }
  void all_gather_bytes(void const* send, std::size_t bytes, void* receive) {
    call const all(*this, {operation::all_gather, send, bytes});
    for (int from = 0; bytes != 0 && from < ranks(); ++from)
      std::memcpy(static_cast<std::byte*>(receive) + static_cast<std::size_t>(from) * bytes, all[from].data,
                  bytes);
  }

  /// Each element becomes its sum over the ranks, added in rank order, the same bits on every rank.
  void all_reduce(float* data, std::size_t count) { sum(operation::reduce_floats, data, count); }
  void all_reduce(double* data, std::size_t count) { sum(operation::reduce_doubles, data, count); }

  /// Modelled link time of this rank's all-to-alls so far, in microseconds: a model, no measurement. Read it while no
  /// call is in progress.
  double modelled_us() const noexcept { return domain_->at(member_).modelled_us; }
  link_model const& link() const noexcept { return domain_->link(); }

private:
  /// A collective call: made when every rank has come, unmade when every rank is done with the others' memory.
  class call {
  public:
    call(communicator const& of, contribution const& mine) : domain_(*of.domain_) {
      domain_.meet(of.member_, mine);
    }
    call(call const&) = delete;
    call& operator=(call const&) = delete;
    ~call() { domain_.rejoin(true); }

    contribution const& operator[](int member) const noexcept { return domain_.at(member).brought; }
    void everyone_is_here_again() const noexcept { domain_.rejoin(false); }

  private:
    domain& domain_;
  };

  static std::size_t rows(int const* of, int before) noexcept {
    std::size_t sum = 0;
    for (int each = 0; each < before; ++each) sum += static_cast<std::size_t>(of[each]);
    return sum;
  }
  std::size_t others(int const* of) const noexcept {
    return rows(of, ranks()) - static_cast<std::size_t>(of[member_]);
  }

  /// Each rank adds up one slice of all ranks' data in place, then fetches the other slices from who added them up.
  template <class Real> void sum(operation what, Real* data, std::size_t count) {
    call const all(*this, {what, data, count * sizeof(Real)});
    auto const slice = [&](int of) {
      return count * static_cast<std::size_t>(of) / static_cast<std::size_t>(ranks());
    };
    for (std::size_t i = slice(member_); i < slice(member_ + 1); ++i) {
      Real total = static_cast<Real const*>(all[0].data)[i];
      for (int from = 1; from < ranks(); ++from) total += static_cast<Real const*>(all[from].data)[i];
      data[i] = total;
    }
    all.everyone_is_here_again();
    for (int from = 0; from < ranks(); ++from) {
      std::size_t const begin = slice(from);
      if (from != member_ && slice(from + 1) != begin)
        std::memcpy(data + begin, static_cast<Real const*>(all[from].data) + begin,
                    (slice(from + 1) - begin) * sizeof(Real));
    }
  }

  void pass_link(clock::time_point start, std::size_t bytes_out, std::size_t bytes_in) {
    double const modelled = domain_->link().transfer_us(bytes_out, bytes_in);
    domain_->at(member_).modelled_us += modelled;
    clock::time_point const end = start + duration_of_us(modelled);
    // A slow link must not outlast the step of a group that has failed.
    constexpr auto nap = std::chrono::milliseconds(50);
    while (end - clock::now() > 2 * nap && !domain_->given_up()) std::this_thread::sleep_for(nap);
    if (!domain_->given_up()) sleep_precisely_until(end);
  }

  domain* domain_;
  int member_;
};

static_assert(row_exchange<communicator>);

} // namespace host
} // namespace v0
} // namespace stretto
