#pragma once

#include <stretto/detail/cxx20.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace detail {

/// Where in the model an op is.
struct op_place {
  int layer = -1;
  int microbatch = -1;
  // The rest of its label, for who names the op: numbers of phase_kind, pass and lane, of which nothing is known here.
  unsigned char phase = 0, what = 0, on = 0;

  bool is_known() const { return layer >= 0 && microbatch >= 0; }
};
inline bool operator==(op_place a, op_place b) { return a.layer == b.layer && a.microbatch == b.microbatch; }
inline std::string string_of(op_place at) {
  return "layer " + std::to_string(at.layer) + ", microbatch " + std::to_string(at.microbatch);
}

/// That of the op with this label (`op_label`).
template <class Label> op_place place_of(Label const& op) {
  return {op.layer, op.microbatch, static_cast<unsigned char>(op.phase), static_cast<unsigned char>(op.what),
          static_cast<unsigned char>(op.on)};
}

/// The place of the op that this thread is in the middle of, which lanes say while it runs. Elsewhere it is unknown.
inline op_place& place_in_progress() {
  thread_local op_place current;
  return current;
}
class place_scope {
public:
  explicit place_scope(op_place now) : before_(std::exchange(place_in_progress(), now)) {}
  ~place_scope() { place_in_progress() = before_; }
  place_scope(place_scope const&) = delete;
  place_scope& operator=(place_scope const&) = delete;

private:
  op_place before_;
};

/// Where something was made that belongs to one microbatch of one layer, such as the handle of a dispatch.
class made_at {
public:
  void note() { place_ = place_in_progress(); }

  /// Throws where it is used for another place than that, if lanes have said both.
  void require_here(char const* what) const {
    op_place const here = place_in_progress();
    if (!place_.is_known() || !here.is_known() || here == place_) return;
    throw std::logic_error(std::string(what) + " of " + string_of(place_) + " is used for " +
                           string_of(here) +
                           ": it belongs to its microbatch, so hand it on as metadata of the layer");
  }

private:
  op_place place_;
};

} // namespace detail
} // namespace v0
} // namespace stretto
