#pragma once

#include <stretto/adapters/array/expert_parallel.hpp>
#include <stretto/adapters/array/maths.hpp>
#include <stretto/adapters/array/router.hpp>
#include <stretto/adapters/array/tensors.hpp>
