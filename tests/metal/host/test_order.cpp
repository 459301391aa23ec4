// What runs when: barriers, fences, command buffers under way, steps that are dropped, replays.
#include <thread>

#include "probes.h"

namespace lily {
namespace {

using namespace test;

TEST(metal_puts_barriers_where_the_step_says) {
  Machine machine;
  const auto device = machine.open();
  const View a = floats(*device, 64, 1), b = floats(*device, 64), c = floats(*device, 64);
  const View d = floats(*device, 64);
  Step step;
  add(step, a, b, 1);
  add(step, a, c, 2);  // beside the first
  add(step, b, d, 3);  // after it
  device->submit(step);
  device->wait();
  CHECK_EQ(simulated::statistics().barriers, 1u);
  CHECK_EQ(first(*device, c), 3.0f);
  CHECK_EQ(first(*device, d), 5.0f);
}

TEST(metal_orders_command_buffers_by_a_fence) {
  Machine machine;
  machine.settings.most_delay_us = 300;
  const auto device = machine.open();
  const View word(device->allocate(4));
  Step step;
  add_count(step, word);
  add_count(step, word);
  constexpr int kRuns = 60;
  for (int run = 0; run < kRuns; ++run) device->submit(step);
  uint32_t count = 0;
  device->read(word, &count, sizeof count);
  CHECK_EQ(count, 2u * kRuns);
  CHECK_EQ(simulated::statistics().passes_that_waited, simulated::statistics().committed);
}

TEST(metal_holds_what_is_under_way) {
  Machine machine;
  machine.settings.most_delay_us = 500;
  const auto device = machine.open();
  const View result = floats(*device, 64);
  for (int round = 0; round < 20; ++round) {
    const View mine = floats(*device, 64, 1);
    View between(device->allocate(64 * sizeof(float)));
    Step step;
    add(step, mine, between, 1);
    add(step, between, result, 1);
    device->submit(step);
    if (round % 3 == 0) device->submit(step);
    step.clear();  // and with it the last handles of its buffers
    between = View();
  }
  CHECK_EQ(first(*device, result), 3.0f);
}

TEST(metal_ends_with_work_under_way) {
  Machine machine;
  machine.settings.most_delay_us = 2000;
  auto device = machine.open();
  Step step;
  add_count(step, View(device->allocate(4)));
  for (int run = 0; run < 4; ++run) device->submit(step);
  device.reset();
}

// Buffers may be the last that hold the GPU.
TEST(metal_buffers_outlive_the_device) {
  Machine machine;
  auto device = machine.open();
  const View kept = floats(*device, 64, 4);
  device.reset();
  CHECK_EQ(reinterpret_cast<const float*>(kept.host())[63], 4.0f);
}

TEST(metal_encodes_what_will_follow_while_the_gpu_works) {
  Machine machine;
  const auto device = machine.open();
  const View word(device->allocate(4)), other(device->allocate(4));
  Step step, another;
  add_count(step, word);
  add_count(step, word);
  add_count(another, other);
  const auto run = [&](const Step& it) {
    device->submit(it);
    device->wait();
  };
  for (int replay = 0; replay < 4; ++replay) run(step);
  // Two encoded as they were submitted, two ahead, and one more for what may come.
  CHECK_EQ(simulated::statistics().barriers, 5u);
  CHECK_EQ(simulated::statistics().committed, 4u);
  run(another);
  run(step);  // what was encoded for it still holds
  CHECK_EQ(simulated::statistics().barriers, 5u);
  for (int turn = 0; turn < 2; ++turn) run(another), run(step);  // by turns, each ahead
  CHECK_EQ(simulated::statistics().barriers, 7u);
  uint32_t counts[2] = {};
  device->read(word, &counts[0], 4);
  device->read(other, &counts[1], 4);
  CHECK_EQ(counts[0], 14u);
  CHECK_EQ(counts[1], 3u);
}

TEST(metal_waits_for_a_ticket_alone) {
  Machine machine;
  machine.settings.most_delay_us = 2000;
  const auto device = machine.open();
  const View first(device->allocate_shared(4)), second(device->allocate_shared(4));
  Step one, two;
  add_count(one, first);
  add_count(two, second);
  for (uint32_t turn = 1; turn <= 20; ++turn) {
    const Ticket ticket = device->submit(one), later = device->submit(two);
    CHECK(ticket < later);
    device->wait(ticket);
    CHECK_EQ(*reinterpret_cast<const uint32_t*>(first.host()), turn);
    device->wait(later);
    CHECK_EQ(*reinterpret_cast<const uint32_t*>(second.host()), turn);
    device->wait(ticket);  // long done
  }
}

// A queue holds 64 command buffers, those that wait to be replayed among them.
TEST(metal_serves_more_steps_than_a_queue_holds_command_buffers) {
  Machine machine;
  const auto device = machine.open();
  const View word(device->allocate(4));
  std::vector<Step> steps(100);
  for (Step& step : steps) add_count(step, word);
  for (int round = 0; round < 3; ++round) {
    for (const Step& step : steps) {
      device->submit(step);
      device->submit(step);
      device->submit(step);
    }
  }
  uint32_t count = 0;
  device->read(word, &count, sizeof count);
  CHECK_EQ(count, 900u);
}

TEST(metal_takes_steps_of_two_threads) {
  Machine machine;
  machine.settings.most_delay_us = 100;
  const auto device = machine.open();
  const auto count_to = [&](int runs) {
    const View word(device->allocate(4));
    Step step;
    add_count(step, word);
    uint32_t count = 0;
    for (int run = 0; run < runs; ++run) {
      device->submit(step);
      if (run % 7 == 0) device->wait();
      device->allocate(4096);
    }
    device->read(word, &count, sizeof count);
    CHECK_EQ(count, static_cast<uint32_t>(runs));
  };
  std::thread beside([&] { count_to(90); });
  count_to(70);
  beside.join();
}

TEST(metal_cuts_long_steps_by_what_the_gpu_took) {
  Machine machine;
  machine.settings.us_per_group = 10;  // as the simulated GPU's clock counts
  machine.most_us = 10e3;
  const auto device = machine.open();
  const View from = floats(*device, 64 * 100, 1);
  Step step;
  std::vector<View> to;
  for (int at = 0; at < 60; ++at) add(step, from, to.emplace_back(floats(*device, 6400)), 1, 100);
  device->submit(step);
  device->wait();
  // Nothing is known yet: 100 groups of the first guess, 8 us, are 12 dispatches.
  CHECK_EQ(simulated::statistics().committed, 5u);
  device->submit(step);
  device->wait();
  CHECK_EQ(simulated::statistics().committed, 5u + 6u);  // a millisecond each
  for (const View& view : to) CHECK_EQ(first(*device, view), 2.0f);
  Step long_step;  // one dispatch cannot be cut
  add(long_step, from, to[0], 1, 100);
  machine.settings.us_per_group = 1000;
  for (int run = 0; run < 3; ++run) device->submit(long_step);
  CHECK_EQ(first(*device, to[0]), 2.0f);
}

TEST(metal_times_by_the_gpus_clock) {
  Machine machine;
  machine.settings.us_per_group = 3;
  const auto device = machine.open();
  const View from = floats(*device, 640), to = floats(*device, 640);
  Step step;
  add(step, from, to, 1, 10);
  const std::vector<double> times = device->time_us(step, 4);
  CHECK_EQ(times.size(), 4u);
  for (const double us : times) CHECK(us > 29.9 && us < 30.1);
}

}  // namespace
}  // namespace lily
