// What every device can do with the functions of the seam alone.
#include "device/device.h"

#include <chrono>

namespace lily {

std::vector<double> Device::time_us(const Step& step, uint32_t repeats) {
  using Clock = std::chrono::steady_clock;
  submit(step);
  wait();
  std::vector<double> times;
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    const Clock::time_point begin = Clock::now();
    submit(step);
    wait();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return times;
}

}  // namespace lily
