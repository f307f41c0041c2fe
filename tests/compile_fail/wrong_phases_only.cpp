// expect: stretto\[E68\]: a layer is given other phases than its block lists, or in another order
// expect: us::Only
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Only : stretto::Block<Attention> {};
struct Model : stretto::Blocks<Only> {};
} // namespace us

void add(stretto::layer_list<us::Model>& layers) {
  layers.add(stretto::layer<us::Only>({})); // Braces around nothing make the phase.
#ifdef STRETTO_COMPILE_FAIL
  layers.add(stretto::layer<us::Only>());
#else
  layers.add(stretto::layer<us::Only>(us::Attention{}));
#endif
}
