#include "device/cpu/cpu_topology.h"

#include <hwloc.h>

#include <algorithm>

namespace polysil {

CpuTopology::CpuTopology() {
  if (hwloc_topology_init(&topology_) != 0) {
    topology_ = nullptr;
    return;
  }
  if (hwloc_topology_load(topology_) != 0) {
    hwloc_topology_destroy(topology_);
    topology_ = nullptr;
    return;
  }
  hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
  if (hwloc_get_cpubind(topology_, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
    hwloc_topology_restrict(topology_, allowed, 0);
  }
  hwloc_bitmap_free(allowed);
  cores_ = std::max(1, hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_CORE));
  memory_bytes_ = static_cast<int64_t>(hwloc_get_root_obj(topology_)->total_memory);
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, 0);
  const char* model =
      package != nullptr ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  if (model != nullptr) cpu_model_ = model;
  for (hwloc_obj_t cache = nullptr;
       (cache = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_L3CACHE, cache)) != nullptr;) {
    l3_bytes_ += static_cast<int64_t>(cache->attr->cache.size);
  }
}

CpuTopology::~CpuTopology() {
  if (topology_ != nullptr) hwloc_topology_destroy(topology_);
}

void CpuTopology::BindThread(int32_t core_index) const {
  if (topology_ == nullptr) return;
  const hwloc_obj_t core =
      hwloc_get_obj_by_type(topology_, HWLOC_OBJ_CORE, static_cast<unsigned>(core_index % cores_));
  if (core != nullptr) hwloc_set_cpubind(topology_, core->cpuset, HWLOC_CPUBIND_THREAD);
}

}  // namespace polysil
