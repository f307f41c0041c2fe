#pragma once

#include <stretto/adapter.hpp>

#include <algorithm>
#include <charconv>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {

/// One op that ran (or was simulated) on one rank. Times are microseconds since a moment common to all ranks.
struct span {
  op_label label;
  int rank;
  double start_us;
  double end_us;
};

/// What an op spends its time on. Communication is dispatch and combine, on whichever lane they run. Messages between
/// pipeline ranks are apart: a receive is mostly waiting for a rank that is not there yet.
enum class work : unsigned char { compute, communication, messages };

constexpr work work_of(op_label const& op) {
  if (is_message(op)) return work::messages;
  return op.phase == dispatch || op.phase == combine ? work::communication : work::compute;
}
constexpr char const* name_of(work what) {
  constexpr char const* names[] = {"compute", "comm", "messages"};
  return names[static_cast<int>(what)];
}

/// `F.attn L2 mb3`, or for a message `send F S2 mb3`: the op's name in pictures.
inline std::string short_name(op_label const& op) {
  if (is_message(op))
    return std::string(name_of(op.on)) + (op.what == pass::forward ? " F" : " B") + " S" +
           std::to_string(op.layer) + " mb" + std::to_string(op.microbatch);
  return std::string(letter_of(op.what)) + "." + name_of(op.phase) + " L" + std::to_string(op.layer) + " mb" +
         std::to_string(op.microbatch);
}

/// Where the time of one rank went, in microseconds. Ops that overlap on several lanes count once.
struct busy_time {
  /// From the first start to the last end.
  double length_us = 0;
  double compute_us = 0;
  double communication_us = 0;
  /// Communication was busy and compute idle: what overlap did not hide.
  double exposed_us = 0;
};

inline busy_time busy_of_rank(std::span<span const> spans, int rank) {
  struct change {
    double at;
    work what;
    int by;
  };
  std::vector<change> changes;
  for (span const& each : spans) {
    if (each.rank != rank) continue;
    changes.push_back({each.start_us, work_of(each.label), 1});
    changes.push_back({each.end_us, work_of(each.label), -1});
  }
  busy_time sum;
  if (changes.empty()) return sum;
  std::sort(changes.begin(), changes.end(), [](change const& a, change const& b) { return a.at < b.at; });
  int running[3] = {};
  double last = changes.front().at;
  for (change const& each : changes) {
    double const passed = each.at - last;
    bool const computes = running[static_cast<int>(work::compute)] != 0;
    bool const communicates = running[static_cast<int>(work::communication)] != 0;
    if (computes) sum.compute_us += passed;
    if (communicates) sum.communication_us += passed;
    if (communicates && !computes) sum.exposed_us += passed;
    running[static_cast<int>(each.what)] += each.by;
    last = each.at;
  }
  sum.length_us = last - changes.front().at;
  return sum;
}

namespace detail {

inline void append_number(std::string& to, double value) {
  char digits[350]; // the longest finite double, without an exponent, has 309 before the point
  to.append(digits, std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, 3).ptr);
}

inline void append_quoted(std::string& to, std::string_view text) {
  to += '"';
  for (char const each : text) {
    if (each == '"' || each == '\\') to += '\\';
    if (static_cast<unsigned char>(each) >= 0x20)
      to += each;
    else
      to += ' ';
  }
  to += '"';
}

} // namespace detail

/// Writes the spans as a Chrome trace (JSON object format), for Perfetto and chrome://tracing: a process per rank, a
/// thread per lane. `note` is kept in the file, the place to say what was modelled, and so is `about`: names and values for
/// programs that read the file again. Times must be finite.
/// Source: "Trace Event Format", the Chromium project.
inline void write_chrome_trace(std::ostream& out, std::span<span const> spans, std::string_view note = {},
                               std::span<std::pair<std::string, std::string> const> about = {}) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"note\":";
  detail::append_quoted(text, note);
  for (auto const& [name, value] : about) {
    text += ',';
    detail::append_quoted(text, name);
    text += ':';
    detail::append_quoted(text, value);
  }
  text += "},\"traceEvents\":[";
  char const* separator = "\n";
  auto const place = [&](int rank, lane on) {
    text += "\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(static_cast<int>(on));
  };
  auto const describe = [&](char const* what, int rank, lane on, char const* argument,
                            std::string const& value) {
    text += std::string(std::exchange(separator, ",\n")) + "{\"name\":\"" + what + "\",\"ph\":\"M\",";
    place(rank, on);
    text += std::string(",\"args\":{\"") + argument + "\":" + value + "}}";
  };

  std::vector<std::pair<int, lane>> places;
  for (span const& each : spans) places.emplace_back(each.rank, each.label.on);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  for (auto const& [rank, on] : places) {
    describe("process_name", rank, on, "name", "\"rank " + std::to_string(rank) + "\"");
    describe("process_sort_index", rank, on, "sort_index", std::to_string(rank));
    describe("thread_name", rank, on, "name", std::string("\"") + name_of(on) + "\"");
    describe("thread_sort_index", rank, on, "sort_index", std::to_string(static_cast<int>(on)));
  }
  for (span const& each : spans) {
    text += std::string(std::exchange(separator, ",\n")) + "{\"name\":\"" + short_name(each.label) +
            "\",\"cat\":\"" + name_of(work_of(each.label)) + "\",\"ph\":\"X\",\"ts\":";
    detail::append_number(text, each.start_us);
    text += ",\"dur\":";
    detail::append_number(text, each.end_us - each.start_us);
    text += ',';
    place(each.rank, each.label.on);
    text += ",\"args\":{\"layer\":" + std::to_string(each.label.layer) +
            ",\"microbatch\":" + std::to_string(each.label.microbatch) + "}}";
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    text.clear();
  }
  text += "\n]}\n";
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

} // namespace v0
} // namespace stretto
