// Loaded before user-mode Linux, whose releases before 6.13 have room for 2.7 KB of what a processor keeps of a process. ptrace
// wants all there is (11 KB with AMX), and refuses less: so what the guest does not know of is kept as it was.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define NT_X86_XSTATE 0x202

long ptrace(enum __ptrace_request request, ...) {
    static char whole[1 << 16] __attribute__((aligned(64)));
    va_list list;
    va_start(list, request);
    pid_t pid = va_arg(list, pid_t);
    void *addr = va_arg(list, void *), *data = va_arg(list, void *);
    va_end(list);
    if ((request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && (long)addr == NT_X86_XSTATE) {
        struct iovec *part = data, all = {whole, sizeof whole};
        if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, addr, &all) < 0)
            return -1;
        size_t size = part->iov_len < all.iov_len ? part->iov_len : all.iov_len;
        if (request == PTRACE_SETREGSET) {
            memcpy(whole, part->iov_base, size);
            return syscall(SYS_ptrace, request, pid, addr, &all);
        }
        memcpy(part->iov_base, whole, size);
        part->iov_len = size;
        return 0;
    }
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        // The system call stores what the function returns.
        long word = 0;
        if (syscall(SYS_ptrace, request, pid, addr, &word) < 0)
            return -1;
        errno = 0;
        return word;
    }
    return syscall(SYS_ptrace, request, pid, addr, data);
}
