// expect: stretto\[E28\]: a phase or block lists something that is no value
// expect: us::Passing
// expect: the_value<us::(trunk|Passing::carries)>
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct trunk : stretto::value {};
struct Reader : Whole<stretto::mlp> {
  using reads = stretto::values<hidden, trunk>;
  using writes = stretto::values<hidden>;
};
struct Maker : Whole<stretto::attn> {
  using writes = stretto::values<hidden, trunk>;
};
struct Start : stretto::Block<Maker> {};
struct Passing : stretto::Block<Reader> {
#ifdef STRETTO_COMPILE_FAIL
  using carries = trunk;
#else
  using carries = stretto::values<trunk>;
#endif
};
struct Model : stretto::Blocks<Start, Passing> {};
struct Step : stretto::Schedule<Model, stretto::Serial> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
