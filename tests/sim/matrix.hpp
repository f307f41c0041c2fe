#pragma once

#include <stretto/adapters/sim.hpp>
#include <stretto/rules.hpp>

#include <map>
#include <string>
#include <vector>

/// What became of mutants.
namespace sim_test {

using numbered_values = stretto::sim::numbered<stretto::sim::final_value>;

/// Numbers that are the same with every compiler and library.
class numbers {
public:
  explicit numbers(unsigned long long seed) : state_(seed * 0x9e37'79b9'7f4a'7c15U + 1) {}
  unsigned long long next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return state_;
  }
  int below(int limit) { return limit <= 1 ? 0 : static_cast<int>(next() >> 11 & 0x7fff'ffff) % limit; }

private:
  unsigned long long state_;
};

struct verdict {
  stretto::fault refused;
  stretto::sim::trouble caught;
};

/// Mutants by kind, layer policy and pipeline.
class matrix {
public:
  /// `equivalent`: it is known to order the same rows as before. `may_be_strict`: the checker may refuse it although no run
  /// goes wrong, for a reason that the page tells.
  void enter(std::string const& kind, std::string const& policy, std::string const& pipeline,
             verdict const& v, bool equivalent, bool may_be_strict);
  /// Fails where the checker and the simulator differ.
  void require_agreement() const;
  /// Waits of tables that nobody has changed, and how many of them other waits imply.
  void count_waits(long all, long implied) { waits_ += all, implied_ += implied; }
  std::string page() const;
  long waits() const { return waits_; }
  long implied() const { return implied_; }

  struct counts {
    long tried = 0, refused = 0, caught = 0, strict = 0, legal = 0, equivalent = 0;
  };

private:
  static void add(counts& to, verdict const& v, bool equivalent);
  std::vector<std::string> kinds_, rows_; ///< in the order in which they came
  std::map<std::string, std::map<std::string, counts>> of_kind_;
  std::vector<std::string> disagreements_;
  long waits_ = 0, implied_ = 0;
};

/// Mutants of bodies and the policies that order them, of lowered ranks, of the calls of plans, and of their messages.
void mutate_bodies(matrix& into);
void mutate_tables(matrix& into);
void mutate_calls(matrix& into);
void mutate_messages(matrix& into);

/// How much this build tries: everything, or without optimization (and under sanitizers, which are not) a tenth.
#ifdef __OPTIMIZE__
inline constexpr bool tries_all = true;
#else
inline constexpr bool tries_all = false;
#endif

} // namespace sim_test
