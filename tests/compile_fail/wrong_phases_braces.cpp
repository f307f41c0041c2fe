// expect: stretto\[E68\]: a layer is given other phases than its block lists, or in another order
// expect: us::Layer
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Model : stretto::Blocks<Layer> {};
} // namespace us

void add(stretto::layer_list<us::Model>& layers) {
#ifdef STRETTO_COMPILE_FAIL
  layers.add(stretto::layer<us::Layer>(us::Attention{}, {}));
#else
  layers.add(stretto::layer<us::Layer>(us::Attention{}, {}, us::Experts{}, {}));
  layers.add(stretto::layer<us::Layer>({}, {}, {}, {}));
#endif
}
