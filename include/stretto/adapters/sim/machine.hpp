#pragma once

#include <stretto/adapters/sim/memory.hpp>
#include <stretto/adapters/sim/passes.hpp>
#include <stretto/adapters/sim/wires.hpp>

#include <array>
#include <map>
#include <tuple>
#include <utility>

/// Runs op tables, one row after another, in any order that it is told.
namespace stretto {
inline namespace v0 {
namespace sim {

/// A program, ready to run many times. Values are small numbers; sums of gradients depend on the order of their terms. A row
/// finds its inputs where the rows that ran before it left them; which storage it writes to was settled when it was issued.
class machine {
public:
  machine(program const& of, transport how, senses const& sees = {})
      : of_(of), how_(how), sees_(sees), wires_(of, how), places_(1 + wires_.count() * max_carried),
        blocks_(places_) {
    for (int rank = 0; rank < of.ranks.size(); ++rank) compile(rank);
    begin(0);
    first_part_.push_back(parts_.size() - 1);
    sort_by_name();
  }

  sim::graph const& graph() const { return wires_.graph(); }
  int task_of(int rank, int row) const { return wires_.task_of(rank, row); }
  /// What is wrong with the wiring alone, whatever the order.
  outcome const& wiring() const { return wires_.wrong(); }

  outcome run(numbered<int> const& order) {
    if (wiring().what != trouble::none) return wiring();
    holds_.assign(places_, 0);
    gone_.assign(places_, 0);
    names_.assign(blocks_, 0);
    content_.assign(blocks_, poison);
    sums_.assign(sum_names_.size(), 0);
    seen_.assign(seen_names_.size(), 0);
    wrong_ = {};
    for (int leader : order)
      if (!run_together(wires_.graph().members(leader))) return wrong_;
    for (state_place const& s : states_) {
      // A body alone leaves it to the next one.
      if (s.handed_on >= 0)
        seen_[s.handed_on] = holds_[s.place] == 0 ? 0 : content_[holds_[s.place]];
      else if (sees_.state && holds_[s.place] != 0)
        return {trouble::state_left, s.rank, s.row, {}};
    }
    for (int i : by_name_) {
      bool const sum = i < sums_.size();
      int const at = sum ? i : i - sums_.size();
      wrong_.values.push_back(sum ? final_value{sum_names_[at], sums_[at]}
                                  : final_value{seen_names_[at], seen_[at]});
    }
    return wrong_;
  }
  outcome run() { return run(wires_.graph().in_order()); }

private:
  static constexpr hash poison = 0xdead'beef'dead'beefU;

  struct write {
    int place, block;
    hash salt;
    bool starts_state;
    int seen; ///< which of the values that are looked at; -1: none
  };
  struct copy {
    int from, to, block; ///< block 0: the same storage under another name
    int seen;
  };
  struct given_back {
    int place, block; ///< or `whatever_lies_there`, or `a_name` of several
  };
  static constexpr int whatever_lies_there = -1, a_name = -2;
  struct compiled {
    hash salt;
    /// Where they begin; they end where those of the next one begin.
    int reads, copies, writes, clears, frees;
    int sum, seen; ///< where what it read is added, and looked at; -1: nowhere
  };
  struct state_place {
    int place, rank, row;
    int handed_on; ///< which of the values that are looked at; -1: nobody is to find it
  };

  template <class Members> bool run_together(Members const& members) {
    bool const several = members.end() - members.begin() > 1;
    // A message is written before it is read.
    for (int const sends : {1, 0})
      for (int task : members) {
        if (several && is_send(row(task).on) != (sends == 1)) continue;
        if (!several && sends == 0) continue;
        if (!run_row(task)) return false;
      }
    return true;
  }
  op const& row(int task) const { return of_.ranks[wires_.rank_of(task)].ops[wires_.row_of(task)]; }

  bool run_row(int task) {
    int const number = first_row_[wires_.rank_of(task)] + wires_.row_of(task);
    for (int i = first_part_[number]; i < first_part_[number + 1]; ++i) {
      compiled const &p = parts_[i], &end = parts_[i + 1];
      hash sum = p.salt;
      for (int r = p.reads; r < end.reads; ++r) {
        int const block = holds_[reads_[r]];
        if (content_[block] == poison || gone_[reads_[r]] != 0) return fail(task, block);
        sum = mix(sum, content_[block]);
      }
      if (p.seen >= 0) seen_[p.seen] = sum;
      for (int w = p.writes; w < end.writes; ++w) {
        write const& one = writes_[w];
        if (sees_.state && one.starts_state && holds_[one.place] != 0)
          return fail(task, trouble::state_overwritten);
        holds_[one.place] = one.block;
        names_[one.block] = 1;
        gone_[one.place] = 0;
        content_[one.block] = mix(sum, one.salt);
        if (one.seen >= 0) seen_[one.seen] = content_[one.block];
      }
      // Behind the writes, since a pass may hand on what it wrote itself.
      for (int c = p.copies; c < end.copies; ++c) {
        copy const& one = copies_[c];
        int const block = holds_[one.from];
        if (content_[block] == poison || gone_[one.from] != 0) return fail(task, block);
        if (one.seen >= 0) seen_[one.seen] = content_[block];
        if (one.to == 0) continue;
        holds_[one.to] = one.block == 0 ? block : one.block;
        names_[holds_[one.to]] = one.block == 0 ? names_[block] + 1 : 1;
        gone_[one.to] = 0;
        content_[holds_[one.to]] = content_[block];
      }
      if (p.sum >= 0) sums_[p.sum] = sees_.order_of_sums ? mix(sums_[p.sum], sum) : sums_[p.sum] + sum;
      for (int c = p.clears; c < end.clears; ++c) holds_[clears_[c]] = 0;
      for (int f = p.frees; f < end.frees; ++f) {
        given_back const& one = frees_[f];
        if (one.block == a_name) {
          int const block = std::exchange(holds_[one.place], 0);
          if (block != 0 && --names_[block] == 0 && sees_.poison) content_[block] = poison;
          continue;
        }
        if (!sees_.poison || gone_[one.place] != 0) continue;
        // The name stays, so that a late reader is seen although the storage may hold something else by then.
        content_[one.block > 0 ? one.block : holds_[one.place]] = poison;
        gone_[one.place] = 1;
      }
    }
    return true;
  }
  bool fail(int task, int block) {
    return fail(task, block == 0 ? trouble::nothing_there : trouble::given_back);
  }
  bool fail(int task, trouble what) {
    wrong_ = {what, wires_.rank_of(task), wires_.row_of(task), {}};
    return false;
  }

  /// Everything that does not depend on the order: where rows read and write, and who gets which storage.
  void compile(int rank) {
    rank_table const& table = of_.ranks[rank];
    passes const what(of_, table);
    base_ = places_, first_block_ = blocks_ - 1;
    places_ += what.groups() * places_of_a_group;
    memory own(what.groups() * places_of_a_group, lane_count, sees_.reuse);
    numbered<int> sums(table.layer_id.size() * max_phases, -1);
    numbered<freed> goes = table.gives_back;
    std::sort(goes.begin(), goes.end(), [](freed const& a, freed const& b) {
      return std::tie(a.row, b.before, a.group, a.cell) < std::tie(b.row, a.before, b.group, b.cell);
    });
    int next_freed = 0;
    auto const give_back = [&](int row, bool before) {
      for (; next_freed < goes.size(); ++next_freed) {
        freed const& one = goes[next_freed];
        if (one.row > row || (one.row == row && before && !one.before)) return;
        if (before) begin(0);
        int const place = what.place_of(one.group, one.cell);
        int const block = own.drop(place, static_cast<int>(table.ops[row].on));
        frees_.push_back({base_ + place, what.is_arrival(place) ? a_name
                                         : block == 0           ? whatever_lies_there
                                                                : first_block_ + block});
      }
    };
    first_row_.push_back(first_part_.size());
    for (int row = 0; row < table.ops.size(); ++row) {
      op const& o = table.ops[row];
      first_part_.push_back(parts_.size());
      give_back(row, true);
      if (o.is_message())
        compile_message(what, own, rank, row);
      else
        for (part const& p : what.parts_of(o)) compile_part(what, own, p, rank, row, sums);
      give_back(row, false);
    }
    blocks_ += own.blocks() - 1;
  }

  void compile_part(passes const& what, memory& own, part const& p, int rank, int row, numbered<int>& sums) {
    op const& o = of_.ranks[rank].ops[row];
    int const on = static_cast<int>(o.on);
    begin(p.salt);
    // What a pass reads is looked at as well, since it may matter to nobody.
    if (p.node >= 0) parts_[parts_.size() - 1].seen = read_by(rank, o, p);
    for (int place : p.reads) reads_.push_back(base_ + place);
    for (part::share const& s : p.shares) copies_.push_back({base_ + s.from, base_ + s.to, 0, -1});
    for (part::write const& w : p.writes) {
      int const block = what.is_tensor(w.place, o) ? own.write(w.place, on) : own.write_state(w.place);
      int const seen = w.is_loss ? see(mix(w.salt, static_cast<hash>(o.microbatch))) : -1;
      writes_.push_back({base_ + w.place, first_block_ + block, w.salt, w.starts_state, seen});
      if (w.starts_state && !o.is_port())
        states_.push_back(
            {base_ + w.place, rank, row,
             what.has_ports() ? see(mix(w.salt, static_cast<hash>(w.place % places_of_a_group))) : -1});
    }
    for (int place : p.clears) clears_.push_back(base_ + place);
    for (int place : p.gives_up) frees_.push_back({base_ + place, a_name});
    if (p.adds_to_node < 0) return;
    int& sum = sums[o.layer * max_phases + p.adds_to_node];
    if (sum < 0) {
      sum = sum_names_.size();
      sum_names_.push_back(mix(mix(6000, static_cast<hash>(of_.ranks[rank].layer_id[o.layer])),
                               static_cast<hash>(p.adds_to_node)));
    }
    parts_[parts_.size() - 1].sum = sum;
  }

  void compile_message(passes const& what, memory& own, int rank, int row) {
    op const& o = of_.ranks[rank].ops[row];
    int const wire = wires_.wire_of(rank, row);
    hash const name = wires_.message_name(rank, row);
    begin(name);
    for (int c = 0; c < of_.chain.count; ++c) {
      // A place of its own on the wire; none where nobody is at the other end.
      int const place = what.place_of_message(o, c), mail = wire < 0 ? 0 : 1 + wire * max_carried + c;
      if (is_send(o.on)) {
        copies_.push_back({base_ + place, mail, mail, see(mix(name, 7 + static_cast<hash>(c)))});
        if (o.is_forward()) continue;
        clears_.push_back(base_ + place);
        own.leave(place);
      } else {
        int const block = first_block_ + own.receive(place);
        if (how_ == transport::any_time)
          writes_.push_back({base_ + place, block, static_cast<hash>(c), false, -1});
        else
          copies_.push_back({mail, base_ + place, block, -1});
      }
    }
  }

  void begin(hash salt) {
    parts_.push_back(
        {salt, reads_.size(), copies_.size(), writes_.size(), clears_.size(), frees_.size(), -1, -1});
  }
  int see(hash name) {
    seen_names_.push_back(name);
    return seen_names_.size() - 1;
  }
  int read_by(int rank, op const& o, part const& p) {
    hash const name = mix(mix(p.salt, 9000), static_cast<hash>(o.microbatch));
    int& at = read_[{rank, o.layer, p.node, p.kind, o.microbatch}];
    if (at == 0) at = see(name) + 1;
    return at - 1;
  }
  void sort_by_name() {
    int const sums = sum_names_.size();
    auto const name = [&](int i) { return i < sums ? sum_names_[i] : seen_names_[i - sums]; };
    for (int i = 0; i < sums + seen_names_.size(); ++i) by_name_.push_back(i);
    std::sort(by_name_.begin(), by_name_.end(),
              [&](int a, int b) { return name(a) != name(b) ? name(a) < name(b) : a < b; });
  }

  program const& of_;
  transport how_;
  senses sees_;
  wires wires_;
  int places_, blocks_; ///< the first ones are those of the wires; number 0 is nobody's
  int base_ = 0, first_block_ = 0;
  numbered<int> first_row_, first_part_, reads_, clears_, by_name_;
  numbered<copy> copies_;
  numbered<write> writes_;
  numbered<given_back> frees_;
  numbered<compiled> parts_;
  numbered<state_place> states_;
  numbered<hash> sum_names_, seen_names_;
  numbered<int> holds_, names_; ///< what lies at a place, and at how many
  numbered<char> gone_; ///< whether what a place holds went back
  numbered<hash> content_, sums_, seen_;
  std::map<std::array<int, 5>, int> read_;
  outcome wrong_;
};

} // namespace sim
} // namespace v0
} // namespace stretto
