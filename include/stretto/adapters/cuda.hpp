#pragma once

#if !__has_include(<cuda_runtime_api.h>)
#error "stretto/adapters/cuda.hpp needs <cuda_runtime_api.h>: add the include folder of a CUDA toolkit"
#endif

/// Lanes that are CUDA streams, steps as CUDA graphs, and what ranks that are threads, on one GPU or several, tell each other.
#include <stretto/adapters/cuda/lanes.hpp>
#include <stretto/adapters/cuda/peer_exchange.hpp>
#include <stretto/adapters/cuda/peers.hpp>
#include <stretto/adapters/cuda/ready.hpp>
#include <stretto/adapters/cuda/staged_exchange.hpp>
#include <stretto/adapters/cuda/step_graph.hpp>
