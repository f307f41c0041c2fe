// count WAY LAYERS STEPS: runs that many steps, for a tool that counts instructions.
#include "steps.hpp"

#include <cstdlib>
#include <string_view>

namespace {

template <class Way> void run(int layers, int times) {
  Way step(layers, 8);
  for (int i = 0; i < times; ++i) step();
}

} // namespace

int main(int count, char** argument) {
  if (count != 4) return 2;
  std::string_view const way = argument[1];
  int const layers = std::atoi(argument[2]), times = std::atoi(argument[3]);
  if (way == "hand") run<steps::by_hand>(layers, times);
  if (way == "executor") run<steps::by_executor>(layers, times);
  if (way == "table") run<steps::by_table>(layers, times);
  if (way == "functions") run<steps::by_functions>(layers, times);
}
