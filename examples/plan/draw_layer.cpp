#include "draw.hpp"

#include <stretto/timeline.hpp>

#include "../shared/svg.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

namespace plan_program {

namespace {

using examples::canvas;
using examples::look;
using examples::look_of;
using stretto::lane;
using stretto::op;

constexpr double left = 96, width = 1000, plot = width - left - 24, bar = 46;
constexpr double compute_top = 128, comm_top = 250;

double top_of(lane on) { return on == lane::comm ? comm_top : compute_top; }

std::string title_of(layer_pair const& one) {
  return fmt::format("{}: one layer forward (F) beside one layer backward ({})", one.policy,
                     one.policy == "split_dw" ? "I, W" : "B");
}

std::string summary_of(layer_pair const& one) {
  double const compute = one.busy(lane::compute), comm = one.busy(lane::comm);
  if (comm == 0) return fmt::format("{} {} on one lane", short_number(one.makespan()), one.unit);
  return fmt::format("{} {} for {} of compute and {} of communication; one after the other {}",
                     short_number(one.makespan()), one.unit, short_number(compute), short_number(comm),
                     short_number(compute + comm));
}

/// The op that speaks for the pair at a port: the last one that hands on.
int last_to_hand_on(layer_pair const& one, bool forward) {
  int last = -1;
  for (std::size_t row = 0; row < one.rows.size(); ++row) {
    stretto::cell_access const& touches = one.rows[row].touches;
    bool const hands_on = forward ? (touches.next_writes & stretto::cells::boundary_forward) != 0
                                  : (touches.writes & stretto::cells::boundary_backward) != 0;
    if (one.draws(row) && hands_on) last = static_cast<int>(row);
  }
  return last;
}

void each_wait(layer_pair const& one, auto&& act) {
  for (std::size_t row = 0; row < one.rows.size(); ++row) {
    if (!one.draws(row)) continue;
    for (int const awaited : one.rows[row].wait)
      if (awaited >= 0) act(static_cast<std::size_t>(awaited), row);
  }
}

void arrow(canvas& to, std::string const& path) {
  to.text += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#222222\" stroke-width=\"1.6\" "
                         "marker-end=\"url(#tip)\"/>\n",
                         path);
}

/// From the end of what is awaited to the start of what waits.
void draw_wait(canvas& to, double from_x, lane from, double to_x, lane on) {
  bool const down = top_of(on) > top_of(from);
  double const from_y = top_of(from) + (down ? bar : 0), to_y = top_of(on) + (down ? -1 : bar + 1);
  double const bend = (to_y - from_y) * 0.45;
  arrow(to, fmt::format("M{} {} C{} {} {} {} {} {}", short_number(from_x), short_number(from_y),
                        short_number(from_x), short_number(from_y + bend), short_number(to_x),
                        short_number(to_y - bend), short_number(to_x), short_number(to_y)));
}

/// An arrow between a bar and the layers around the pair, on the outer side of its lane.
void draw_outside(canvas& to, double x, lane on, bool comes_in, std::string const& what) {
  bool const above = on == lane::compute;
  double const edge = above ? compute_top - 1 : comm_top + bar + 1, far = above ? edge - 24 : edge + 24;
  arrow(to, comes_in
                ? fmt::format("M{0} {1} L{0} {2}", short_number(x), short_number(far), short_number(edge))
                : fmt::format("M{0} {1} L{0} {2}", short_number(x), short_number(edge), short_number(far)));
  to.words(comes_in ? x + 7 : x - 7, above ? far + 9 : far - 2, 12, "#222222", comes_in ? "start" : "end",
           what);
}

} // namespace

std::string draw_text(layer_pair const& one) {
  return title_of(one) + "\n\n" + one.text + '\n' + summary_of(one) + '\n';
}

std::string draw_mermaid(layer_pair const& one) {
  std::string text = "flowchart LR\n";
  for (lane const on : {lane::compute, lane::comm}) {
    std::string nodes, order;
    for (std::size_t row = 0; row < one.rows.size(); ++row) {
      if (one.rows[row].on != on) continue;
      nodes += fmt::format("    n{}[\"{} {}\"]\n", row, one.names[row], short_number(one.cost[row]));
      order += fmt::format("{}n{}", order.empty() ? "    " : " --> ", row);
    }
    if (!nodes.empty()) {
      text += fmt::format("  subgraph {0}\n    direction LR\n{1}{2}\n  end\n", stretto::name_of(on), nodes,
                          order);
    }
  }
  text += "  before([the layer before])\n  behind([the layer behind])\n";
  each_wait(one, [&](std::size_t awaited, std::size_t row) {
    std::string const from = one.rows[awaited].on == lane::forward_port    ? "before"
                             : one.rows[awaited].on == lane::backward_port ? "behind"
                                                                           : fmt::format("n{}", awaited);
    text += fmt::format("  {} -.-> n{}\n", from, row);
  });
  return text;
}

std::string draw_svg(layer_pair const& one) {
  double const scale = plot / one.makespan();
  bool const two_lanes =
      one.busy(lane::comm) > 0 ||
      std::any_of(one.rows.begin(), one.rows.end(), [](op const& row) { return row.on == lane::comm; });
  double const foot = (two_lanes ? comm_top : compute_top) + bar + 48;
  canvas to(width, foot + 14);
  to.text += "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
             "markerHeight=\"7\" "
             "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" "
             "fill=\"#222222\"/></marker></defs>\n";
  to.words(left, 24, 16, "#000000", "start", title_of(one));
  to.words(left, 44, 12, "#444444", "start", summary_of(one));
  to.text += '\n';
  double x = left;
  for (stretto::pass const what : {stretto::pass::forward, stretto::pass::backward,
                                   stretto::pass::backward_input, stretto::pass::backward_weight}) {
    auto const runs = [&](op const& row) { return !row.is_port() && row.what == what; };
    if (std::none_of(one.rows.begin(), one.rows.end(), runs)) continue;
    x = to.entry(x, 56, look_of(what), look_of(what).name);
  }
  arrow(to, fmt::format("M{0} 64 L{1} 64", short_number(x), short_number(x + 24)));
  to.words(x + 32, 69, 12, "#222222", "start", "one waits for the other");
  to.text += '\n';

  for (lane const on : {lane::compute, lane::comm}) {
    if (on == lane::comm && !two_lanes) continue;
    to.words(left - 10, top_of(on) + bar / 2 + 5, 13, "#222222", "end", stretto::name_of(on));
    to.text +=
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#d0d0d0\"/>\n",
                    short_number(left), short_number(top_of(on)), short_number(plot), short_number(bar));
  }
  auto const at = [&](double time) { return left + time * scale; };
  for (std::size_t row = 0; row < one.rows.size(); ++row) {
    if (!one.draws(row)) continue;
    look const how = look_of(one.rows[row].what);
    double const begin = at(one.times[row].start), length = std::max(one.cost[row] * scale - 1, 0.4);
    double const y = top_of(one.rows[row].on);
    to.text += fmt::format("<g><title>{}: {} to {} {}</title>", one.names[row],
                           short_number(one.times[row].start), short_number(one.times[row].end), one.unit);
    to.box(begin, y, length, bar, how, false, "", 0);
    if (length >= 8.2 * static_cast<double>(one.names[row].size())) {
      to.words(begin + length / 2, y + 20, 13, how.ink, "middle", one.names[row]);
      to.words(begin + length / 2, y + 36, 11, how.ink, "middle", short_number(one.cost[row]));
    }
    to.text += "</g>\n";
  }
  each_wait(one, [&](std::size_t awaited, std::size_t row) {
    op const& from = one.rows[awaited];
    double const begin = at(one.times[row].start) + 5;
    if (from.is_port())
      draw_outside(to, begin, one.rows[row].on, true,
                   from.on == lane::forward_port ? "from the layer before"
                                                 : "gradient from the layer behind");
    else
      draw_wait(to, at(one.times[awaited].end) - 6, from.on, begin, one.rows[row].on);
  });
  // On a lane of its own a port needs no wait, but the arrow belongs to the picture.
  for (bool const forward : {true, false}) {
    if (int const row = last_to_hand_on(one, forward); row >= 0)
      draw_outside(to, at(one.times[static_cast<std::size_t>(row)].end) - 6,
                   one.rows[static_cast<std::size_t>(row)].on, false,
                   forward ? "to the layer behind" : "gradient to the layer before");
  }
  to.axis(left, foot, scale, one.makespan(), one.unit);
  return to.finish();
}

std::string draw_trace(layer_pair const& one) {
  std::vector<stretto::span> spans;
  for (std::size_t row = 0; row < one.rows.size(); ++row) {
    if (!one.draws(row)) continue;
    constexpr double scale = 1000; // the format counts in microseconds
    spans.push_back({one.label[row], 0, one.times[row].start * scale, one.times[row].end * scale});
  }
  std::ostringstream out;
  stretto::write_chrome_trace(out, spans, title_of(one) + "; modelled");
  return out.str();
}

} // namespace plan_program
