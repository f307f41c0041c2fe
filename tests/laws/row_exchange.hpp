#pragma once

#include <stretto/adapter.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// What every `row_exchange` must do. Every rank of the group calls the same laws in the same order; each returns whether
/// this rank saw it kept.
namespace laws {

namespace detail {

/// How many rows go from one rank to another, in one of several patterns.
enum class traffic { even, uneven, none_from_first, all_to_last, none };
inline constexpr traffic all_traffic[] = {traffic::even, traffic::uneven, traffic::none_from_first,
                                          traffic::all_to_last, traffic::none};
constexpr int rows_between(traffic how, int from, int to, int ranks) {
  switch (how) {
  case traffic::even:
    return 2;
  case traffic::uneven:
    return (3 * from + 5 * to) % 4;
  case traffic::none_from_first:
    return from == 0 ? 0 : 1 + to;
  case traffic::all_to_last:
    return to == ranks - 1 ? 3 + from : 0;
  case traffic::none:
    break;
  }
  return 0;
}
/// What the k-th row from one rank to another says in its i-th byte.
constexpr std::uint8_t byte_of(int from, int to, int k, std::size_t i) {
  return static_cast<std::uint8_t>(1 + from * 37 + to * 101 + k * 11 + static_cast<int>(i) * 7);
}

} // namespace detail

template <class Exchange> bool counts_are_transposed(Exchange& exchange) {
  int const me = exchange.rank(), ranks = exchange.ranks();
  for (detail::traffic const how : detail::all_traffic) {
    std::vector<int> send, counts(static_cast<std::size_t>(ranks), -1);
    for (int to = 0; to < ranks; ++to) send.push_back(detail::rows_between(how, me, to, ranks));
    exchange.exchange_counts(send.data(), counts.data());
    for (int from = 0; from < ranks; ++from)
      if (counts[static_cast<std::size_t>(from)] != detail::rows_between(how, from, me, ranks)) return false;
  }
  return true;
}

/// Rows arrive whole, in the order of the ranks and within one in the order of its rows; own rows too, and nothing behind
/// them is written. Also where ranks have nothing to send or receive.
template <class Exchange> bool rows_arrive_in_rank_order(Exchange& exchange) {
  int const me = exchange.rank(), ranks = exchange.ranks();
  for (detail::traffic const how : detail::all_traffic)
    for (std::size_t const row_bytes : {std::size_t{1}, std::size_t{4}, std::size_t{36}}) {
      std::vector<int> send_rows, receive_rows;
      std::vector<std::uint8_t> send, expected;
      for (int other = 0; other < ranks; ++other) {
        send_rows.push_back(detail::rows_between(how, me, other, ranks));
        receive_rows.push_back(detail::rows_between(how, other, me, ranks));
        for (int k = 0; k < send_rows.back(); ++k)
          for (std::size_t i = 0; i < row_bytes; ++i) send.push_back(detail::byte_of(me, other, k, i));
        for (int k = 0; k < receive_rows.back(); ++k)
          for (std::size_t i = 0; i < row_bytes; ++i) expected.push_back(detail::byte_of(other, me, k, i));
      }
      expected.resize(expected.size() + 16, 0);
      std::vector<std::uint8_t> received(expected.size(), 0);
      exchange.all_to_all(send.data(), send_rows.data(), received.data(), receive_rows.data(), row_bytes);
      if (received != expected) return false;
    }
  return true;
}

/// What was sent may be overwritten once the call has returned, and calls do not mix.
template <class Exchange> bool calls_are_apart(Exchange& exchange) {
  std::size_t const ranks = static_cast<std::size_t>(exchange.ranks());
  std::vector<int> const one(ranks, 1);
  bool kept = true;
  std::vector<int> send(ranks), received(ranks);
  for (int round = 0; round < 200; ++round) {
    send.assign(ranks, round * 100 + exchange.rank());
    exchange.all_to_all(send.data(), one.data(), received.data(), one.data(), sizeof(int));
    send.assign(ranks, -1);
    for (std::size_t from = 0; from < ranks; ++from)
      kept = kept && received[from] == round * 100 + static_cast<int>(from);
  }
  return kept;
}

} // namespace laws
