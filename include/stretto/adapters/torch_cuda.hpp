#pragma once

#if !__has_include(<c10/cuda/CUDAStream.h>)
#error \
    "stretto/adapters/torch_cuda.hpp needs <c10/cuda/CUDAStream.h>: add the include folder of a libtorch built with CUDA"
#endif

/// What joins the adapters of torch and of CUDA: torch on the streams of `cuda::lanes`. Tensors are those of
/// `torch::stream_tensors`, rows go through `torch::expert_parallel` or `torch::fixed_parallel` over an exchange of `cuda` or
/// `nccl`, and experts multiply by `cublas::stream_handles`.
#include <stretto/adapters/torch_cuda/current_stream.hpp>
#include <stretto/adapters/torch_cuda/expert_products.hpp>
#include <stretto/adapters/torch_cuda/graph_memory.hpp>
#include <stretto/adapters/torch_cuda/memory.hpp>
#include <stretto/adapters/torch_cuda/message_tensors.hpp>
#include <stretto/adapters/torch_cuda/repeatable.hpp>
