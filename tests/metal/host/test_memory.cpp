// Buffers of the Metal device: zeroed, wrapped without a copy, several windows over one file,
// residency.
#include <sys/mman.h>

#include "probes.h"

namespace lily {
namespace {

using namespace test;

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Mapped memory of some pages, as a file has it; each float is its own index.
struct Pages {
  explicit Pages(size_t count) : bytes(count * kPage) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data = static_cast<float*>(memory);
    for (size_t i = 0; i < bytes / sizeof(float); ++i) data[i] = static_cast<float>(i);
    mprotect(memory, bytes, PROT_READ);
  }
  ~Pages() { munmap(data, bytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  float* data;
  size_t bytes;
};

TEST(metal_memory_begins_as_zeros_and_copies_in_order) {
  Machine machine;
  machine.settings.most_delay_us = 500;
  const auto device = machine.open();
  const View left = floats(*device, 64), right = floats(*device, 64, 5);
  CHECK(contents(*device, View(device->allocate(16))) == std::vector<float>(4));
  Step step;
  add(step, right, left, 1);
  device->submit(step);
  device->copy(right.slice(4, 4), left.slice(8, 4), 4);  // after the step
  CHECK_EQ(contents(*device, right)[1], 6.0f);
  device->submit(step);
  const float nine = 9;
  device->write(right, &nine, sizeof nine);
  CHECK_EQ(contents(*device, left)[0], 6.0f);  // written after the step had read it
  CHECK_EQ(device->allocate(0)->bytes(), 1u);
  CHECK_THROWS(InvalidInput, "leave a view", device->copy(left, right, 257));
}

TEST(metal_wraps_pages_in_place_and_keeps_the_owner) {
  Machine machine;
  const auto device = machine.open();
  auto pages = std::make_shared<Pages>(2);
  const std::weak_ptr<Pages> watch = pages;
  // A file that ends inside its last page.
  View view(device->wrap(pages, pages->data, pages->bytes - 24));
  CHECK(view.host() == reinterpret_cast<std::byte*>(pages->data));
  pages.reset();
  const View to = floats(*device, 64);
  Step step;
  add(step, view.slice(kPage + 64, 256), to, 0.5f);
  device->submit(step);
  CHECK_EQ(first(*device, to), static_cast<float>(kPage / 4 + 16) + 0.5f);
  step.clear();
  CHECK(!watch.expired());
  view = View();
  device->wait();
  CHECK(watch.expired());
}

TEST(metal_copies_what_is_on_no_page) {
  Machine machine;
  const auto device = machine.open();
  auto pages = std::make_shared<Pages>(1);
  const View view(device->wrap(pages, pages->data + 4, 64));
  CHECK(view.host() != reinterpret_cast<std::byte*>(pages->data + 4));
  CHECK_EQ(first(*device, view), 4.0f);
}

TEST(metal_opens_windows_over_long_files) {
  Machine machine;
  machine.settings.max_buffer_bytes = 3 * kPage + 100;
  const auto device = machine.open();
  auto pages = std::make_shared<Pages>(10);
  const View view(device->wrap(pages, pages->data, pages->bytes));
  const View to = floats(*device, 64);
  const auto read_at = [&](size_t offset, size_t bytes) {
    Step step;
    add(step, view.slice(offset, bytes), to, 0);
    device->submit(step);
    return first(*device, to);
  };
  for (const size_t offset : {size_t{0}, kPage * 2 + 512, kPage * 5 - 128, kPage * 10 - 256}) {
    CHECK_EQ(read_at(offset, 256), static_cast<float>(offset / 4));
  }
  CHECK_EQ(simulated::statistics().alive["MTLBuffer"], 1 + 3);
  read_at(kPage, 256);  // in a window that is open
  CHECK_EQ(simulated::statistics().alive["MTLBuffer"], 1 + 3);
  CHECK_THROWS(OutOfMemory, "longer than a buffer of this GPU may be", read_at(kPage, 4 * kPage));
}

TEST(metal_says_what_does_not_fit) {
  Machine machine;
  machine.settings.working_set_bytes = uint64_t{1} << 20;
  machine.settings.max_buffer_bytes = uint64_t{1} << 21;
  const auto device = machine.open();
  const Buffer taken = device->allocate(1000);
  CHECK_EQ(device->memory_total_bytes(), uint64_t{1} << 20);
  CHECK_EQ(device->memory_available_bytes(), (uint64_t{1} << 20) - 1000);
  CHECK_THROWS(OutOfMemory, "the GPU can use 1.05 MB, 1.00 KB are taken",
               device->allocate(size_t{1} << 21));
  CHECK_THROWS(OutOfMemory, "a buffer of this GPU has at most 2.10 MB",
               device->allocate(size_t{1} << 22));
  machine.settings.fail_buffers_no_copy = true;
  auto pages = std::make_shared<Pages>(1);
  CHECK_THROWS(OutOfMemory, "cannot map", device->wrap(pages, pages->data, pages->bytes));
}

TEST(metal_keeps_every_buffer_resident) {
  Machine machine;
  const auto device = machine.open();
  const View from = floats(*device, 64), to = floats(*device, 64);
  auto pages = std::make_shared<Pages>(2);
  View file(device->wrap(pages, pages->data, pages->bytes));
  Step step;
  add(step, from, to, 1);
  device->submit(step);
  device->wait();
  const auto now = [] { return simulated::statistics(); };
  CHECK_EQ(now().resident_buffers, 3u);
  CHECK(now().residency_requests >= 1);
  file = View();
  CHECK_EQ(now().resident_buffers, 2u);  // at once: the set would hold the pages
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  CHECK(now().residency_requests >= 2);  // of the heartbeat
}

TEST(metal_runs_without_residency_sets) {
  Machine machine;
  machine.settings.os_major = 14;
  const auto device = machine.open();
  const View from = floats(*device, 64, 2), to = floats(*device, 64);
  Step step;
  add(step, from, to, 1);
  device->submit(step);
  CHECK_EQ(first(*device, to), 3.0f);
  CHECK_EQ(simulated::statistics().resident_buffers, 0u);
}

}  // namespace
}  // namespace lily
