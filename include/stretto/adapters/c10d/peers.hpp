#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/c10d/sent.hpp>
#include <stretto/adapters/c10d/waiting.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace c10d {

/// Messages between pipeline ranks that are processes: a `peer_adapter` for tensors in host memory. A tensor travels as a
/// header (what it is, its type and sizes) and its elements in order. `rank` is the own rank in the pipeline. A send never
/// waits for its receive; one thread at a time may send along one route, and one receive.
class peers {
public:
  using tensor = at::Tensor;
  using group = ::c10::intrusive_ptr<::c10d::Backend>;

  peers(int rank, waiting& in_flight) : rank_(rank), waiting_(in_flight), sent_(in_flight) {}

  /// Before the first message, each route with a group of its own. In `of` rank 0 sends and rank 1 receives.
  void add(message_route const& along, group of) { ways_[along].along = std::move(of); }

  void send(message const& about, at::Tensor const& content) {
    way& to = way_of({rank_, about.peer, about.gradient});
    auto const name = "message to rank " + std::to_string(about.peer) + " of the pipeline";
    auto const head = at::zeros({fields}, at::kLong);
    auto* const first = head.mutable_data_ptr<std::int64_t>();
    first[0] = key_of(about);
    at::Tensor body;
    if (content.defined()) {
      // Storage of its own: the sender's may be written again before this has left.
      body = content.detach().clone(at::MemoryFormat::Contiguous);
      if (body.dim() > most_dimensions)
        throw std::invalid_argument(name + ": a tensor of " + std::to_string(body.dim()) +
                                    " dimensions, and the most are " + std::to_string(most_dimensions) +
                                    "; send it in another shape");
      first[1] = 1, first[2] = static_cast<std::int64_t>(body.scalar_type()), first[3] = body.dim();
      for (int d = 0; d < body.dim(); ++d) first[4 + d] = body.size(d);
    }
    for (auto const& part : {head, body}) {
      if (!part.defined() || part.numel() == 0) continue;
      std::vector<at::Tensor> one{part};
      sent_.add(start([&] { return to.along->send(one, 1, to.next_tag()); }, name), name);
    }
  }

  at::Tensor receive(message const& about) {
    way& from = way_of({about.peer, rank_, about.gradient});
    auto const wanted = key_of(about);
    for (auto each = from.early.begin(); each != from.early.end(); ++each)
      if (each->first == wanted) {
        at::Tensor found = std::move(each->second);
        from.early.erase(each);
        return found;
      }
    for (;;) {
      auto [key, content] = next_along(from, about.peer);
      if (key == wanted) return content;
      from.early.emplace_back(key, std::move(content));
    }
  }

private:
  static constexpr int most_dimensions = 8, fields = most_dimensions + 4;

  struct way {
    group along;
    int tag = 0;
    std::deque<std::pair<std::int64_t, at::Tensor>> early{}; ///< came before they were asked for

    /// Parts are matched by their number, should a backend let them pass each other.
    int next_tag() { return tag = (tag + 1) % (1 << 20); }
  };

  std::pair<std::int64_t, at::Tensor> next_along(way& from, int peer) {
    auto const name = "message from rank " + std::to_string(peer) + " of the pipeline";
    auto const receive_part = [&](at::Tensor const& part) {
      std::vector<at::Tensor> one{part};
      waiting_(start([&] { return from.along->recv(one, 0, from.next_tag()); }, name), name,
               waiting_.patience());
    };
    auto const head = at::empty({fields}, at::kLong);
    receive_part(head);
    auto const* const first = head.const_data_ptr<std::int64_t>();
    if (first[1] == 0) return {first[0], at::Tensor()};
    if (first[3] < 0 || first[3] > most_dimensions)
      throw process_error(name + ": a tensor of " + std::to_string(first[3]) +
                          " dimensions, and the most are " + std::to_string(most_dimensions) +
                          "; give all ranks one program");
    auto content = at::empty(at::IntArrayRef(first + 4, static_cast<std::size_t>(first[3])),
                             static_cast<at::ScalarType>(first[2]));
    if (content.numel() != 0) receive_part(content);
    return {first[0], content};
  }

  template <class Call>
  static ::c10::intrusive_ptr<::c10d::Work> start(Call const& call, std::string const& name) {
    try {
      return call();
    } catch (std::exception const& error) {
      throw process_error(name + ": " + waiting::first_line(error.what()));
    }
  }

  static std::int64_t key_of(message const& m) {
    return ((static_cast<std::int64_t>(m.stage) << 32) + m.microbatch) * 16 + m.chain * 2 + m.gradient;
  }
  way& way_of(message_route const& along) {
    auto const found = ways_.find(along);
    if (found == ways_.end())
      throw std::logic_error("c10d::peers has no group from rank " + std::to_string(along.from) +
                             " to rank " + std::to_string(along.to));
    return found->second;
  }

  int rank_;
  waiting& waiting_;
  std::map<message_route, way> ways_;
  sent_messages sent_;
};

static_assert(peer_adapter<peers>);

} // namespace c10d
} // namespace v0
} // namespace stretto
