#pragma once

#if !__has_include(<cublas_v2.h>)
#error "stretto/adapters/cublas.hpp needs <cublas_v2.h>: add the include folder of a CUDA toolkit"
#endif

/// The matrix products of experts: forward, input gradient and weight gradient apart.
#include <stretto/adapters/cublas/experts.hpp>
#include <stretto/adapters/cublas/handle.hpp>
#include <stretto/adapters/cublas/stream_handles.hpp>
#include <stretto/adapters/cublas/warm.hpp>
