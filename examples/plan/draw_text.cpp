#include "draw.hpp"
#include "notation.hpp"
#include "usage.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace plan_program {

namespace {

constexpr long most_calls = 20000;
constexpr std::size_t panel_width = 104;
constexpr double most_columns = 200000;

/// What fills a call behind its token: the denser, the later in a microbatch's life.
char fill(stretto::call const& one) {
  switch (one.what) {
  case stretto::form::forward_backward:
    return '=';
  case stretto::form::forward:
    return '-';
  case stretto::form::backward:
    return '#';
  case stretto::form::backward_input:
    return '+';
  case stretto::form::backward_weight:
    return '%';
  }
  return ' ';
}

/// Columns per unit of time, so that every token fits its call with a bar between.
double scale_of(picture const& one) {
  double scale = 0;
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    for (long at = 0; at < one.of.size(rank); ++at) {
      double const length = one.finish(rank, at) - one.start(rank, at);
      auto const wanted = static_cast<double>(token(one.facts(), rank, one.of.calls(rank)[at]).size() + 1);
      if (length > 0) scale = std::max(scale, wanted / length);
    }
  }
  return std::min(scale, most_columns / one.run.makespan());
}

std::string row_of(picture const& one, int rank, double scale, std::size_t width) {
  std::string row(width, ' ');
  for (long at = 0; at < one.of.size(rank); ++at) {
    auto const begin = static_cast<std::size_t>(std::lround(one.start(rank, at) * scale));
    auto const end = std::min(width, static_cast<std::size_t>(std::lround(one.finish(rank, at) * scale)));
    std::string const name = token(one.facts(), rank, one.of.calls(rank)[at]);
    for (std::size_t column = begin; column < end; ++column) {
      std::size_t const inside = column - begin;
      row[column] = inside == 0             ? '|'
                    : inside <= name.size() ? name[inside - 1]
                                            : fill(one.of.calls(rank)[at]);
    }
    if (end < width) row[end] = '|';
  }
  return row;
}

/// Times above the columns, at round numbers at least ten columns apart.
std::string ruler(std::size_t first, std::size_t width, double scale) {
  double const every = round_step(10 / scale);
  std::string row(width, ' ');
  for (double time = std::ceil(static_cast<double>(first) / scale / every) * every;; time += every) {
    auto const column = static_cast<std::size_t>(std::lround(time * scale));
    std::string const number = short_number(time);
    if (column + number.size() > first + width) break;
    if (column >= first) row.replace(column - first, number.size(), number);
  }
  while (!row.empty() && row.back() == ' ') row.pop_back();
  return row;
}

} // namespace

std::string picture::title() const { return title_of(facts()); }

std::string picture::summary() const {
  double worst = 0;
  int live = 0;
  for (int rank = 0; rank < facts().ranks; ++rank) {
    worst = std::max(worst, run.bubble(rank));
    live = std::max(live, run.rank(rank).peak_live);
  }
  return fmt::format("makespan {} {}, {:.3f} of ideal; bubble {} on the idlest rank; at most {} live",
                     short_number(run.makespan()), costs.unit, run.ratio(), short_number(worst),
                     counted(live, "chunk activation", "chunk activations"));
}

std::string draw_text(picture const& one) {
  if (one.of.size() > most_calls) {
    throw usage_error(fmt::format(
        "--format text draws at most {} calls and this plan has {}; take --format golden or trace, "
        "or fewer ranks and microbatches",
        most_calls, one.of.size()));
  }
  double const scale = scale_of(one);
  auto const width = static_cast<std::size_t>(std::lround(one.run.makespan() * scale)) + 1;
  std::vector<std::string> rows;
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    rows.push_back(row_of(one, rank, scale, width));
  }
  std::string const label = fmt::format("rank {}", one.facts().ranks - 1);
  std::string text = one.title() + '\n' + one.summary() + "\n\n";
  for (std::size_t first = 0; first < width; first += panel_width) {
    std::size_t const columns = std::min(panel_width, width - first);
    text += fmt::format("{:>{}}  {}\n", one.costs.unit, label.size(), ruler(first, columns, scale));
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      std::string part = rows[rank].substr(first, columns);
      while (!part.empty() && part.back() == ' ') part.pop_back();
      text += fmt::format("{:<{}}  {}\n", fmt::format("rank {}", rank), label.size(), part);
    }
    text += '\n';
  }
  text += "F3.0- forward of stage 3, microbatch 0   B3.0# backward   I3.0+ its input gradients   W3.0% its "
          "weight gradients\n"
          "F0.2+B3.1= an overlapped pair            blank: bubble\n";
  return text;
}

} // namespace plan_program
