// Where CUPTI's own header has what is read of a kernel's record.
#include <cupti.h>
#include <stddef.h>
#include <stdio.h>

int main(void) {
  printf("%zu %zu %zu %d\n", offsetof(CUpti_ActivityKernel9, kind), offsetof(CUpti_ActivityKernel9, start),
         offsetof(CUpti_ActivityKernel9, end), CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  return 0;
}
