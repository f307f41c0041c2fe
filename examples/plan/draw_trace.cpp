#include "draw.hpp"
#include "notation.hpp"

#include <iterator>

#include <fmt/format.h>

namespace plan_program {

namespace {

char const* category(stretto::call const& one) {
  switch (one.what) {
  case stretto::form::forward_backward:
    return "pair";
  case stretto::form::forward:
    return "forward";
  case stretto::form::backward:
    return "backward";
  case stretto::form::backward_input:
    return "backward_input";
  case stretto::form::backward_weight:
    return "backward_weight";
  }
  return "";
}

} // namespace

std::string draw_trace(picture const& one) {
  // The format counts in microseconds; a millisecond or a unit becomes a thousand of them.
  constexpr double scale = 1000;
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  auto const to = std::back_inserter(text);
  fmt::format_to(to, "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"name\":\"{}\"}}}}",
                 one.title());
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    fmt::format_to(to,
                   ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":{0},\"args\":{{\"name\":"
                   "\"rank {0}\"}}}}",
                   rank);
    for (long at = 0; at < one.of.size(rank); ++at) {
      stretto::call const& call = one.of.calls(rank)[at];
      fmt::format_to(
          to, ",\n{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{},\"dur\":{}}}",
          token(one.facts(), rank, call), category(call), rank, short_number(one.start(rank, at) * scale),
          short_number((one.finish(rank, at) - one.start(rank, at)) * scale));
    }
  }
  return text + "\n]}\n";
}

} // namespace plan_program
