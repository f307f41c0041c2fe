#include "svg.hpp"

#include "numbers.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace examples {

canvas::canvas(double width, double height) {
  fmt::format_to(
      to_,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"DejaVu Sans, Verdana, sans-serif\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n",
      short_number(width), short_number(height));
}

void canvas::box(double x, double y, double width, double height, look const& how, bool odd_chunk,
                 std::string const& label, double font) {
  fmt::format_to(to_, "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>", short_number(x),
                 short_number(y), short_number(width), short_number(height), how.fill);
  // The second chunk of a rank wears a bar along its foot: lightness is taken by the pass.
  if (odd_chunk) {
    fmt::format_to(to_, "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"3\" fill=\"{}\"/>", short_number(x),
                   short_number(y + height - 3), short_number(width), how.ink);
  }
  if (!label.empty() && width >= font * 0.62 * static_cast<double>(label.size())) {
    words(x + width / 2, y + height / 2 + font * 0.34 - (odd_chunk ? 1 : 0), font, how.ink, "middle", label);
  }
  text += '\n';
}

void canvas::words(double x, double y, double font, char const* ink, char const* anchor,
                   std::string const& what) {
  fmt::format_to(to_, "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{}\">{}</text>",
                 short_number(x), short_number(y), short_number(font), ink, anchor, what);
}

void canvas::frame(lane_rows const& at, double length) {
  fmt::format_to(to_,
                 "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#d0d0d0\"/>\n",
                 short_number(at.left), short_number(at.top), short_number(length * at.scale),
                 short_number(lane_rows::height));
}

void canvas::op(lane_rows const& at, stretto::span const& one, bool odd_chunk) {
  double const lane_top = one.label.on == stretto::lane::comm ? at.top + lane_rows::lane_height + 1 : at.top;
  fmt::format_to(to_, "<g><title>{}: {} to {} {}</title>", stretto::short_name(one.label),
                 short_number(one.start_us), short_number(one.end_us), at.unit);
  box(at.left + one.start_us * at.scale, lane_top,
      std::max((one.end_us - one.start_us) * at.scale - 0.5, 0.4), lane_rows::lane_height,
      look_of(one.label.what), odd_chunk, fmt::format("{}", one.label.microbatch), 10);
  text += "</g>\n";
}

double canvas::entry(double x, double y, look const& how, char const* name, bool odd_chunk) {
  box(x, y, 18, 16, how, odd_chunk, "", 0);
  words(x + 24, y + 13, 12, "#222222", "start", name);
  return x + 42 + 6.4 * static_cast<double>(std::string_view(name).size());
}

void canvas::axis(double left, double y, double scale, double last, std::string const& unit) {
  double const every = round_step(60 / scale);
  for (double time = 0; time <= last; time += every)
    words(left + time * scale, y, 11, "#444444", "middle", short_number(time));
  words(left - 8, y, 11, "#444444", "end", unit);
}

} // namespace examples
