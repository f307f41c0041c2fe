#pragma once

#include <stretto/adapters/sim/part.hpp>
#include <stretto/adapters/sim/program.hpp>

/// What the rows of a table read and write, from the dataflow of their blocks and from nothing else: a second reading of
/// what a pass is, beside the one that programs are linked and proved with.
namespace stretto {
inline namespace v0 {
namespace sim {

/// The passes of one rank.
class passes {
public:
  passes(program const& of, rank_table const& table) : of_(of), table_(table) {
    for (op const& o : table.ops) {
      groups_ = (std::max)({groups_, o.group + 1, o.next_group + 1});
      has_ports_ = has_ports_ || o.is_port();
    }
    for (freed const& f : table.gives_back) groups_ = (std::max)(groups_, f.group + 1);
    home_ = numbered<int>(groups_ * max_carried);
    arrives_ = numbered<char>(groups_ * max_carried, 0);
    for (int i = 0; i < home_.size(); ++i) home_[i] = i;
    for (op const& o : table.ops) {
      if (is_receive(o.on) && o.is_forward())
        for (int c = 0; c < of.chain.count; ++c) arrives_[o.group * max_carried + c] = 1;
      if (o.is_message() || o.is_port() || !o.is_forward()) continue;
      block_facts const& f = facts(o);
      for (int i = 0; i < f.inputs; ++i)
        if (f.input_is_carried[i])
          home_[o.next_group * max_carried + chain_of(f, i)] = o.group * max_carried + chain_of(f, i);
    }
  }

  int groups() const { return groups_; }
  bool has_ports() const { return has_ports_; }

  /// The parts of a row that is no message.
  numbered<part> parts_of(op const& o) const {
    numbered<part> all;
    if (o.on == lane::forward_port)
      all.push_back(arriving(o));
    else if (o.on == lane::backward_port)
      port_of_backward(o, all);
    else
      add_pass(all, o, o.node, o.what);
    return all;
  }
  /// Where a message is taken from or goes to, by chain value.
  int place_of_message(op const& o, int chain) const {
    return o.is_forward() ? value_place(o.group, chain) : place(o.group, chain_gradient_cell(chain));
  }
  /// Where the value lies that a release names.
  int place_of(int group, int cell) const {
    return cells::is_chain_value(cell) ? value_place(group, cell) : place(group, cell);
  }
  bool is_arrival(int place) const {
    int const cell = place % places_of_a_group;
    return cells::is_chain_value(cell) && arrives_[place / places_of_a_group * max_carried + cell] != 0;
  }
  /// Whether a place holds a tensor, with storage from a lane's memory; what else there is lives with the microbatch.
  bool is_tensor(int place, op const& o) const {
    int const cell = place % places_of_a_group;
    if (cell >= context_cell(0) && cell < kept_cell(0)) return false;
    if (!cells::is_root(cell) || o.is_message()) return true;
    return !facts(o).root_is_metadata[cell - root_cell(0)];
  }

private:
  static constexpr int place(int group, int cell) { return group * places_of_a_group + cell; }
  block_facts const& facts(op const& o) const { return of_.blocks[o.block]; }
  int chain_of(block_facts const& f, int input) const { return of_.chain.find(f.input[input]); }
  int chain_of_root(block_facts const& f, int v) const {
    return f.root_is_output[v] ? of_.chain.find(f.root[v]) : -1;
  }

  int value_place(int group, int chain) const {
    int at = group * max_carried + chain;
    while (home_[at] != at) at = home_[at];
    return place(at / max_carried, chain_value_cell(at % max_carried));
  }
  /// Where a phase finds what it reads.
  int read_place(op const& o, int leaf) const {
    block_facts const& f = facts(o);
    return f.leaf_root[leaf] >= 0 ? place(o.group, root_cell(f.leaf_root[leaf]))
                                  : value_place(o.group, chain_of(f, f.leaf_input[leaf]));
  }
  /// Where the storage of a read lies: that of the first in a row of values, each of which hands on the one before.
  int storage_place(op const& o, int leaf) const {
    block_facts const& f = facts(o);
    while (f.leaf_root[leaf] >= 0 && f.root_alias[f.leaf_root[leaf]] >= 0)
      leaf = f.root_alias[f.leaf_root[leaf]];
    return read_place(o, leaf);
  }
  /// Where a backward finds what a phase reads or hands on. Storage that came in is kept under a name of one's own.
  int saved_place(op const& o, int leaf) const {
    int const at = storage_place(o, leaf);
    return is_arrival(at) ? place(o.group, kept_cell(leaf)) : at;
  }
  /// Whether the backward of a phase needs what it reads there, as itself or under the name that it hands it on by.
  static bool is_saved(block_facts const& f, int leaf) {
    bool saved = f.leaf_is_saved[leaf] || f.recomputes[f.node_of[f.leaf_phase[leaf]]];
    for (int v = 0; v < f.roots; ++v) saved = saved || (f.root_alias[v] == leaf && f.root_is_saved[v]);
    return saved;
  }
  int root_place(op const& o, int v) const {
    int const c = chain_of_root(facts(o), v);
    return c < 0 ? place(o.group, root_cell(v)) : place(o.next_group, chain_value_cell(c));
  }

  hash name(op const& o, int what) const {
    return mix(mix(17, static_cast<hash>(table_.layer_id[o.layer])), static_cast<hash>(what));
  }

  void add_pass(numbered<part>& all, op const& o, int node, pass what) const {
    if (what == pass::forward) all.push_back(forward(o, node));
    if (what == pass::backward || what == pass::backward_input) all.push_back(input(o, node));
    if (what == pass::backward) all.push_back(weight(o, node, facts(o).node_has_weights(node)));
    if (what == pass::backward_weight) all.push_back(weight(o, node, true));
  }

  part forward(op const& o, int node) const {
    block_facts const& f = facts(o);
    part p;
    p.salt = mix(name(o, 1000 + node), static_cast<hash>(o.microbatch));
    p.node = node;
    for (int r = 0; r < f.leaves; ++r) {
      if (f.node_of[f.leaf_phase[r]] != node) continue;
      if (!f.leaf_inside_node[r]) p.reads.push_back(read_place(o, r));
    }
    for (int v = 0; v < f.roots; ++v) {
      if (f.node_of[f.root_writer[v]] != node) continue;
      if (int const r = f.root_alias[v]; r >= 0)
        p.shares.push_back({read_place(o, r), place(o.group, root_cell(v))});
      else
        p.writes.push_back({root_place(o, v), name(o, v), false, f.root_is_objective[v]});
    }
    for (int r = 0; r < f.leaves; ++r)
      if (f.node_of[f.leaf_phase[r]] == node && is_saved(f, r) && is_arrival(storage_place(o, r)))
        p.shares.push_back({read_place(o, r), place(o.group, kept_cell(r))});
    p.writes.push_back({place(o.group, context_cell(node)), name(o, 100), true});
    return p;
  }

  /// What a backward needs of its forward. Metadata is gone where I has run. A forward that runs again needs all that it reads,
  /// and nothing of what it wrote.
  void read_saved(part& p, op const& o, int node, bool metadata_too) const {
    block_facts const& f = facts(o);
    p.reads.push_back(place(o.group, context_cell(node)));
    for (int r = 0; r < f.leaves; ++r) {
      if (f.node_of[f.leaf_phase[r]] != node) continue;
      int const v = f.leaf_root[r];
      bool const metadata = v >= 0 && f.root_is_metadata[v];
      bool const again = f.recomputes[node];
      if (again && f.leaf_inside_node[r]) continue;
      if (metadata ? !metadata_too : !f.leaf_is_saved[r] && !(again && metadata_too)) continue;
      p.reads.push_back(saved_place(o, r));
    }
    for (int v = 0; v < f.roots; ++v) {
      if (f.node_of[f.root_writer[v]] != node) continue;
      if (f.root_is_metadata[v] ? !metadata_too : !f.root_is_saved[v] || f.recomputes[node]) continue;
      p.reads.push_back(f.root_alias[v] >= 0 ? saved_place(o, f.root_alias[v]) : root_place(o, v));
    }
  }
  void read_output_gradients(part& p, op const& o, int node) const {
    block_facts const& f = facts(o);
    for (int v = 0; v < f.roots; ++v) {
      if (f.node_of[f.root_writer[v]] != node || f.root_is_metadata[v]) continue;
      for (int r = 0; r < f.leaves; ++r)
        if (f.leaf_root[r] == v && !f.leaf_inside_node[r])
          p.reads.push_back(place(o.group, leaf_gradient_cell(r)));
      if (int const c = chain_of_root(f, v); c >= 0)
        p.reads.push_back(place(o.next_group, chain_gradient_cell(c)));
    }
  }

  /// I: gradients of what the node wrote come in, gradients of what it read go out; what W needs is kept.
  part input(op const& o, int node) const {
    block_facts const& f = facts(o);
    part p;
    p.salt = name(o, 2000 + node);
    p.node = node, p.kind = 1;
    read_saved(p, o, node, true);
    read_output_gradients(p, o, node);
    for (int i = 0; i < f.inputs; ++i) {
      if (f.input_node[i] != node) continue;
      if (f.input_is_carried[i]) p.reads.push_back(place(o.next_group, chain_gradient_cell(chain_of(f, i))));
      p.writes.push_back({place(o.group, chain_gradient_cell(chain_of(f, i))), name(o, 200 + i)});
    }
    for (int r = 0; r < f.leaves; ++r) {
      int const v = f.leaf_root[r];
      if (v < 0 || f.node_of[f.leaf_phase[r]] != node || f.leaf_inside_node[r] || f.root_is_metadata[v])
        continue;
      p.writes.push_back({place(o.group, leaf_gradient_cell(r)), name(o, 300 + r)});
    }
    p.writes.push_back({place(o.group, pending_cell(node)), name(o, 101), true});
    for (int v = 0; v < f.roots; ++v)
      if (f.node_of[f.root_writer[v]] == node && f.root_is_metadata[v])
        p.clears.push_back(place(o.group, root_cell(v)));
    return p;
  }

  part weight(op const& o, int node, bool adds) const {
    block_facts const& f = facts(o);
    part p;
    p.salt = name(o, 3000 + node);
    p.node = node, p.kind = 2;
    read_saved(p, o, node, false);
    read_output_gradients(p, o, node);
    p.reads.push_back(place(o.group, pending_cell(node)));
    p.clears.push_back(place(o.group, pending_cell(node)));
    p.clears.push_back(place(o.group, context_cell(node)));
    for (int r = 0; r < f.leaves; ++r)
      if (f.node_of[f.leaf_phase[r]] == node) p.gives_up.push_back(place(o.group, kept_cell(r)));
    for (int v = 0; v < f.roots; ++v)
      if (int const r = f.root_alias[v]; r >= 0 && f.node_of[f.root_writer[v]] == node)
        (is_arrival(storage_place(o, r)) ? p.gives_up : p.clears).push_back(place(o.group, root_cell(v)));
    p.adds_to_node = adds ? node : -1;
    return p;
  }

  part arriving(op const& o) const {
    block_facts const& f = facts(o);
    part p;
    p.salt = mix(name(o, 4000), static_cast<hash>(o.microbatch));
    for (int i = 0; i < f.inputs; ++i)
      p.writes.push_back({place(o.group, chain_value_cell(chain_of(f, i))), name(o, 400 + i)});
    return p;
  }
  /// What the forward of the layer left, and the gradients from behind; where weight passes come alone, what I left as well.
  void port_of_backward(op const& o, numbered<part>& all) const {
    block_facts const& f = facts(o);
    all.push_back(arriving(o));
    for (int n = 0; n < f.nodes; ++n) all.push_back(forward(o, n));
    part behind;
    behind.salt = name(o, 5000);
    for (int v = 0; v < f.roots; ++v)
      if (int const c = chain_of_root(f, v); c >= 0)
        behind.writes.push_back({place(o.next_group, chain_gradient_cell(c)), name(o, 500 + c)});
    for (int i = 0; i < f.inputs; ++i)
      if (f.input_is_carried[i])
        behind.writes.push_back(
            {place(o.next_group, chain_gradient_cell(chain_of(f, i))), name(o, 500 + chain_of(f, i))});
    all.push_back(behind);
    bool weights = false, inputs = false;
    for (op const& other : table_.ops) {
      if (other.is_port() || other.is_message() || other.layer != o.layer) continue;
      weights = weights || other.what == pass::backward_weight;
      inputs = inputs || other.what == pass::backward_input || other.what == pass::backward;
    }
    for (int n = f.nodes - 1; n >= 0 && weights && !inputs; --n)
      add_pass(all, o, n, f.node_has_weights(n) ? pass::backward_input : pass::backward);
  }

  program const& of_;
  rank_table const& table_;
  int groups_ = 0;
  bool has_ports_ = false;
  numbered<int> home_;
  numbered<char> arrives_;
};

} // namespace sim
} // namespace v0
} // namespace stretto
