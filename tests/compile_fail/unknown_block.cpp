// expect: stretto\[E38\]: a layer is added whose block type the model does not list
// expect: us::Extra
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Extra : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Experts, stretto::Detach,
                              Combine> {};
#ifdef STRETTO_COMPILE_FAIL
struct Model : stretto::Blocks<Layer> {};
#else
struct Model : stretto::Blocks<Layer, Extra> {};
#endif
} // namespace us

void add(stretto::layer_list<us::Model>& layers) {
  layers.add(stretto::layer<us::Extra>(us::Attention{}, us::Dispatch{}, us::Experts{}, us::Combine{}));
}
