#include "notation.hpp"

#include <charconv>

namespace plan_program {

namespace {

void add(std::string& text, int number) {
  char digits[12];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void add(std::string& text, char pass, int stage, int microbatch) {
  text += pass;
  add(text, stage);
  text += '.';
  add(text, microbatch);
}

void add(std::string& text, stretto::plan_facts const& facts, int rank, stretto::call const& one) {
  if (one.runs_forward()) add(text, 'F', facts.stage(rank, one.forward_chunk), one.forward_microbatch);
  if (one.what == stretto::form::forward) return;
  if (one.runs_forward()) text += '+';
  char const pass = one.runs_backward() ? 'B' : one.runs_input() ? 'I' : 'W';
  add(text, pass, facts.stage(rank, one.backward_chunk), one.backward_microbatch);
}

void add(std::string& text, stretto::plan_step const& step) {
  text += step.what == stretto::step_kind::send ? "[s" : "[r";
  text += step.carries == stretto::traffic::activation ? "F:" : "B:";
  add(text, step.stage);
  text += '.';
  add(text, step.number);
  text += ':';
  add(text, step.peer);
  text += ']';
}

} // namespace

std::string token(stretto::plan_facts const& facts, int rank, stretto::call const& one) {
  std::string text;
  add(text, facts, rank, one);
  return text;
}

std::string golden(stretto::plan const& of) {
  std::string text;
  for (int rank = 0; rank < of.facts().ranks; ++rank) {
    for (long at = 0; at < of.size(rank); ++at) {
      if (at > 0) text += ' ';
      add(text, of.facts(), rank, of.calls(rank)[at]);
    }
    text += '\n';
  }
  return text;
}

std::string golden(stretto::plan const& of, stretto::plan_steps const& steps) {
  std::string text;
  for (int rank = 0; rank < of.facts().ranks; ++rank) {
    for (long at = 0; at < steps.size(rank); ++at) {
      stretto::plan_step const& step = steps.steps(rank)[at];
      if (at > 0) text += ' ';
      if (step.what == stretto::step_kind::run) {
        add(text, of.facts(), rank, of.calls(rank)[step.number]);
      } else {
        add(text, step);
      }
    }
    text += '\n';
  }
  return text;
}

} // namespace plan_program
