#include "schedule_names.hpp"

#include "words.hpp"

#include <algorithm>
#include <vector>

namespace examples {
namespace {

struct other_name {
  char const* theirs;
  char const* ours;
};

/// Those of torch.distributed.pipelining, Megatron-LM (VPP) and sail-sg/zero-bubble (ZB-H1, ZBV) that are not ours in another spelling.
constexpr other_name other_names[] = {
    {"1f1b", "one_f_one_b"},
    {"1f1b_ep", "one_f_one_b_ep"},
    {"interleaved_1f1b", "interleaved"},
    {"vpp", "interleaved"},
    {"zb_h1", "zero_bubble_h1"},
    {"zbv", "zero_bubble_v"},
    {"zbv_zero_bubble", "zero_bubble_v"},
};

/// Small letters and digits, without separators.
std::string bare(std::string text) {
  std::erase_if(text, [](char letter) { return letter == '_' || letter == '-' || letter == ' '; });
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}

} // namespace

std::string schedule_name(std::string const& word, std::span<std::string const> known) {
  std::string wanted = bare(word);
  for (other_name const& each : other_names)
    if (bare(each.theirs) == wanted) wanted = bare(each.ours);
  auto const found =
      std::find_if(known.begin(), known.end(), [&](std::string const& each) { return bare(each) == wanted; });
  return found == known.end() ? word : *found;
}

std::string other_schedule_names() {
  std::vector<std::string> all;
  for (other_name const& each : other_names) all.emplace_back(each.theirs);
  return listed(all);
}

} // namespace examples
