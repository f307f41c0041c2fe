#pragma once

#include "corpus.hpp"
#include "options.hpp"
#include "trainer.hpp"

#include <ostream>
#include <span>
#include <string>

namespace train_moe {

/// How the ranks reach each other, and what of it is modelled.
std::string link_text(options const& o);

/// What is about to be trained, in three lines.
void print_header(options const& o, corpus const& text);

/// One line that a terminal redraws, or a line for every tenth of the way where there is no terminal.
class progress_line {
public:
  progress_line(policy how, int steps);
  void show(progress const& now);
  /// The line as it stays.
  void finish(run_result const& result);

private:
  policy how_;
  int steps_;
  bool terminal_;
  std::size_t width_ = 0;
};

/// The policies side by side; `runs` has one of the policy `serial`, which the others are compared with.
void print_comparison(options const& o, std::span<run_result const> runs);
/// The same text, to a string, for tests.
std::string comparison_table(std::span<run_result const> runs);

/// One run as an object, or several as `{"runs": [...]}`.
void write_json(std::ostream& out, options const& o, std::span<run_result const> runs);
/// Chrome trace of the last step.
void write_trace(std::ostream& out, options const& o, run_result const& run);

} // namespace train_moe
