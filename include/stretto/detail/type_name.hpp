#pragma once

#include <stretto/detail/cxx20.hpp>

/// Identity and readable name of a type as values, so that lists of types can be handled by ordinary loops.
namespace stretto {
inline namespace v0 {
namespace detail {

/// A slice of static text (a `string_view` without its header's cost).
struct text {
  char const* begin = "";
  int size = 0;
};

constexpr bool operator==(text a, text b) {
  if (a.size != b.size) return false;
  for (int i = 0; i < a.size; ++i)
    if (a.begin[i] != b.begin[i]) return false;
  return true;
}

template <class Type> constexpr text pretty_function() {
#if defined(__clang__) || defined(__GNUC__)
  return {__PRETTY_FUNCTION__, sizeof(__PRETTY_FUNCTION__) - 1};
#else
  return {"Type = type]", 12};
#endif
}

/// Equal for equal types only (up to a collision of 64 bits); comparable in constant expressions. An address would do as
/// well, but g++ does not compare addresses of templates at compile time under -fno-delete-null-pointer-checks, which the
/// undefined-behaviour sanitizer implies.
using type_id = unsigned long long;

/// FNV-1a (Fowler, Noll, Vo).
constexpr type_id hash_of(text name) {
  type_id hash = 14695981039346656037U;
  for (int i = 0; i < name.size; ++i)
    hash = (hash ^ static_cast<unsigned char>(name.begin[i])) * 1099511628211U;
  return hash;
}
template <class Type> inline constexpr type_id hashed_name = hash_of(pretty_function<Type>());
template <class Type> constexpr type_id id_of() { return hashed_name<Type>; }

/// The name of `T` as the user wrote it, without namespaces and template arguments.
template <class Type> constexpr text name_of_type() {
  // Both compilers spell "... [with Type = ns::name; ...]" or "... [Type = ns::name]".
  text const all = pretty_function<Type>();
  constexpr char const key[] = "Type = ";
  constexpr int length = sizeof key - 1;
  int start = 0;
  for (int i = 0; i + length <= all.size && start == 0; ++i) {
    int same = 0;
    while (same < length && all.begin[i + same] == key[same]) ++same;
    if (same == length) start = i + length;
  }
  int end = start;
  int last = start;
  while (end < all.size && all.begin[end] != ';' && all.begin[end] != ']' && all.begin[end] != '<') {
    if (all.begin[end] == ':') last = end + 1;
    ++end;
  }
  return {all.begin + last, end - last};
}

} // namespace detail
} // namespace v0
} // namespace stretto
