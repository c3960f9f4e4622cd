#include "model/mapped_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "polysil/base/check.h"

namespace polysil {
namespace {

Status OpenFailure(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) return NotFound("{}: no such file", path);
  return FailedPrecondition("{}: cannot be opened: {}", path, std::strerror(error));
}

// Closes on every way out.
class FileDescriptor final {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its other end.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return OpenFailure(path, errno);
  struct stat facts = {};
  if (::fstat(fd.get(), &facts) != 0) return OpenFailure(path, errno);
  if (S_ISDIR(facts.st_mode)) return InvalidArgument("{}: is a folder, not a file", path);
  if (!S_ISREG(facts.st_mode)) return InvalidArgument("{}: is not a regular file", path);
  const auto size = static_cast<size_t>(facts.st_size);
  std::span<const std::byte> bytes;
  if (size > 0) {
    void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (base == MAP_FAILED) {
      return FailedPrecondition("{}: {} bytes cannot be mapped: {}", path, size,
                                std::strerror(errno));
    }
    bytes = {static_cast<const std::byte*>(base), size};
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string MappedFile::name() const {
  const size_t slash = path_.rfind('/');
  return slash == std::string::npos ? path_ : path_.substr(slash + 1);
}

void MappedFile::Prefetch() const {
  if (!bytes_.empty()) {
    ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_WILLNEED);
  }
}

void MappedFile::DropPages() const {
  if (!bytes_.empty()) {
    ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
  }
}

StatusOr<std::string> ReadTextFile(const std::string& path, int64_t bytes_max) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  if (static_cast<int64_t>(bytes.size()) > bytes_max) {
    return ResourceExhausted("{}: has {} bytes, at most {} are read", path, bytes.size(),
                             bytes_max);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  const int ok =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
  CHECK(ok == 1 && length == 32, "SHA-256 gave {} bytes", length);
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace polysil
