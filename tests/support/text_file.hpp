#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include <unistd.h>

/// A file of text that is not quite regular, for as long as it lives.
class text_file {
public:
  text_file()
      : path_(std::filesystem::temp_directory_path() / ("stretto_text." + std::to_string(::getpid()))) {
    std::ofstream out(path_);
    std::minstd_rand random(1);
    for (int line = 0; line < 4000; ++line)
      out << "line " << line << " of " << (random() >> 12)
          << (random() % 2 == 0 ? " fugues\n" : " canons;\n");
  }
  ~text_file() { std::filesystem::remove(path_); }
  text_file(text_file const&) = delete;
  text_file& operator=(text_file const&) = delete;
  std::filesystem::path const& path() const { return path_; }

private:
  std::filesystem::path path_;
};
