#pragma once

#include <stretto/adapters/sim/attack.hpp>
