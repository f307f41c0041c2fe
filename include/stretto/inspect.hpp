#pragma once

#include <stretto/check/proof.hpp>

#include <string>

/// Programs for people to read.
namespace stretto {
inline namespace v0 {

namespace detail {

/// "F.attn": the letter of the pass and the kind of the node's first phase.
template <class Schedule> std::string op_name(op const& o) {
  if (o.on == lane::forward_port) return "the layer before";
  if (o.on == lane::backward_port) return "the layer behind";
  block_facts const& f =
      *facts_at<typename Schedule::model>(o.block, std::make_integer_sequence<int, Schedule::model::count>{});
  return std::string(letter_of(o.what)) + '.' + name_of(f.kind[f.first_phase_of(o.node)]);
}

inline std::string padded(std::string s, unsigned width) {
  if (s.size() < width) s.append(width - s.size(), ' ');
  return s;
}

} // namespace detail

/// The program of one body as text: a line per op in the order in which the host issues them, with its lane and what it
/// waits for; then the lanes side by side. By default the overlapped pair of the first block type with itself.
/// An illegal `Schedule` does not compile.
template <class Schedule, form Form = form::forward_backward, int Forward = 0, int Backward = 0>
std::string to_text() {
  // What proof<Schedule> stands on: a level of instantiation less in the compiler's message.
  [[maybe_unused]] detail::verdict<Schedule, detail::fault_in<Schedule>::value.d.what> const legal{};
  using body = body_of<Schedule, Form, Forward, Backward>;
  auto const& rows = body::value.ops;
  std::string text = "  #  lane     op           waits for\n";
  std::string lanes[2] = {"compute |", "comm    |"};
  int number = 0;
  for (int i = 0; i < body::size; ++i) {
    op const& o = rows[i];
    if (o.is_port()) continue;
    std::string const name = detail::op_name<Schedule>(o);
    std::string waits;
    for (int w : o.wait)
      if (w >= 0) waits += (waits.empty() ? "" : ", ") + detail::op_name<Schedule>(rows[w]);
    std::string const count = std::to_string(++number);
    std::string line = std::string(count.size() < 3 ? 3 - count.size() : 0, ' ') + count + "  " +
                       detail::padded(name_of(o.on), 8) + " " + detail::padded(name, 12) + " " + waits;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
    lanes[o.on == lane::comm] += ' ' + name;
  }
  return text + '\n' + lanes[0] + '\n' + lanes[1] + "\n\n" + std::to_string(number) + " ops, " +
         std::to_string(body::value.waits()) + " waits\n";
}

} // namespace v0
} // namespace stretto
