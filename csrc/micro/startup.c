/* Starts a Cortex-M: stack, data, floating point, then main. */
#include <stdint.h>

extern uint32_t data_begin, data_end, data_stored, bss_begin, bss_end, stack_top;
int main(void);

__attribute__((noreturn)) void surnn_exit(int failed) {
    register uint32_t operation __asm__("r0") = 0x18; /* semihosting: SYS_EXIT */
    register uint32_t reason __asm__("r1") = failed ? 0x20023 : 0x20026;
    __asm__ volatile("bkpt 0xab" : : "r"(operation), "r"(reason) : "memory");
    for (;;) {}
}

static void on_fault(void) { surnn_exit(1); }

void on_reset(void) {
    uint32_t *from = &data_stored;
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* CPACR: floating point, where there is some */
    __asm__ volatile("dsb\n\tisb");
    for (uint32_t *to = &data_begin; to < &data_end;) *to++ = *from++;
    for (uint32_t *to = &bss_begin; to < &bss_end;) *to++ = 0;
    surnn_exit(main());
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (void *)on_reset, (void *)on_fault, (void *)on_fault,
    (void *)on_fault, (void *)on_fault, (void *)on_fault,
};
