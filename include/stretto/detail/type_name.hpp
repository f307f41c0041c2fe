#pragma once

/// Identity and readable name of a type as values, so that lists of types can be handled by ordinary loops.
namespace stretto {
inline namespace v0 {
namespace detail {

template <class T> inline constexpr char type_tag = 0;

/// Equal for equal types only; comparable in constant expressions.
using type_id = char const*;
template <class T> constexpr type_id id_of() { return &type_tag<T>; }

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

template <class T> constexpr text pretty_function() {
#if defined(__clang__) || defined(__GNUC__)
  return {__PRETTY_FUNCTION__, sizeof(__PRETTY_FUNCTION__) - 1};
#else
  return {"T = type]", 9};
#endif
}

/// The name of `T` as the user wrote it, without namespaces and template arguments.
template <class T> constexpr text name_of_type() {
  // Both compilers spell "... [with T = ns::name; ...]" or "... [T = ns::name]".
  text const all = pretty_function<T>();
  int start = 0;
  for (int i = 0; i + 4 <= all.size; ++i)
    if (all.begin[i] == 'T' && all.begin[i + 1] == ' ' && all.begin[i + 2] == '=' && all.begin[i + 3] == ' ') {
      start = i + 4;
      break;
    }
  int end = start;
  int last = start;
  while (end < all.size && all.begin[end] != ';' && all.begin[end] != ']' && all.begin[end] != '<') {
    if (all.begin[end] == ':') last = end + 1;
    ++end;
  }
  return {all.begin + last, end - last};
}

}  // namespace detail
}  // namespace v0
}  // namespace stretto
