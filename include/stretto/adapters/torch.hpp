#pragma once

#if !__has_include(<ATen/ATen.h>)
#error \
    "stretto/adapters/torch.hpp needs <ATen/ATen.h>: add libtorch's include folder, or run examples/setup.sh"
#endif

/// Everything that lets phases be written with `at::Tensor` and run with torch's autograd engine.
#include <stretto/adapters/torch/checked_tensors.hpp>
#include <stretto/adapters/torch/device_order.hpp>
#include <stretto/adapters/torch/embedding.hpp>
#include <stretto/adapters/torch/exchange_rows.hpp>
#include <stretto/adapters/torch/expert_functions.hpp>
#include <stretto/adapters/torch/expert_linear.hpp>
#include <stretto/adapters/torch/expert_order.hpp>
#include <stretto/adapters/torch/expert_parallel.hpp>
#include <stretto/adapters/torch/fixed_parallel.hpp>
#include <stretto/adapters/torch/host_copy.hpp>
#include <stretto/adapters/torch/linear.hpp>
#include <stretto/adapters/torch/parameter.hpp>
#include <stretto/adapters/torch/rms_norm.hpp>
#include <stretto/adapters/torch/rows.hpp>
#include <stretto/adapters/torch/slots.hpp>
#include <stretto/adapters/torch/stream_tensors.hpp>
#include <stretto/adapters/torch/tensors.hpp>
#include <stretto/adapters/torch/threads.hpp>
#include <stretto/adapters/torch/unchecked_tensors.hpp>
#include <stretto/adapters/torch/untrained_leaf.hpp>
#include <stretto/adapters/torch/weighted.hpp>
