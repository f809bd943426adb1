//! End of a process by a refused system call, with a line that names the call.
//!
//! The filter raises SIGSYS (`SECCOMP_RET_TRAP`), and the call is not executed. The handler may
//! interrupt any code, so it allocates nothing, takes no lock, and calls only functions that
//! signal-safety(7) allows. It writes the line directly to standard error.

use std::io;

/// Exit status of a process that its filter has ended: as the shell shows a death by SIGSYS.
pub(crate) const STATUS: libc::c_int = 128 + libc::SIGSYS;

/// Maximum wait for standard error to accept the line, in milliseconds.
const STDERR_TIMEOUT_MS: libc::c_int = 50;

/// Makes every later call that a filter refuses end this process with [`STATUS`].
///
/// # Errors
///
/// Returns an error if the operating system refuses the handler.
pub(crate) fn exit_on_refused_call() -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the structure is a local variable, the handler has the signature that SA_SIGINFO
    // requires, and it is signal-safe.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a complete siginfo_t. For SIGSYS by a filter, the call number
    // follows the address of the instruction, which begins 16 bytes into the structure
    // (sigaction(2): si_call_addr, si_syscall).
    let number = unsafe { info.cast::<u8>().add(24).cast::<libc::c_int>().read_unaligned() };
    let mut line = Line { octets: [0; 224], length: 0 };
    line.push(b"vireo: process ");
    line.number(std::process::id());
    line.push(b" ends: its seccomp filter refuses system call ");
    line.number(number.unsigned_abs());
    line.push(b" (");
    line.push(name(number.into()).as_bytes());
    line.push(b"); report this as a bug, or as an attack if no release was changed\n");
    let mut poll = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: plain calls on local structures and bytes; poll, write and _exit are signal-safe.
    unsafe {
        if libc::poll(&raw mut poll, 1, STDERR_TIMEOUT_MS) == 1 {
            libc::write(libc::STDERR_FILENO, line.octets.as_ptr().cast(), line.length);
        }
        libc::_exit(STATUS);
    }
}

/// A line built without allocation.
struct Line {
    octets: [u8; 224],
    length: usize,
}

impl Line {
    fn push(&mut self, octets: &[u8]) {
        for octet in octets {
            if let Some(place) = self.octets.get_mut(self.length) {
                *place = *octet;
                self.length += 1;
            }
        }
    }

    fn number(&mut self, number: u32) {
        let (mut digits, mut at, mut rest) = ([0_u8; 10], 10, number);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 || at == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }
}

/// Returns the names of the calls most likely refused to a process without privileges.
fn name(number: libc::c_long) -> &'static str {
    match number {
        libc::SYS_socket => "socket",
        libc::SYS_connect => "connect",
        libc::SYS_bind => "bind",
        libc::SYS_listen => "listen",
        libc::SYS_sendto => "sendto",
        libc::SYS_sendmsg => "sendmsg",
        libc::SYS_recvfrom => "recvfrom",
        libc::SYS_recvmsg => "recvmsg",
        libc::SYS_execve => "execve",
        libc::SYS_execveat => "execveat",
        libc::SYS_clone => "clone",
        libc::SYS_clone3 => "clone3",
        libc::SYS_ptrace => "ptrace",
        libc::SYS_kill => "kill",
        libc::SYS_tgkill => "tgkill",
        libc::SYS_mmap => "mmap",
        libc::SYS_mprotect => "mprotect",
        libc::SYS_prctl => "prctl",
        libc::SYS_ioctl => "ioctl",
        libc::SYS_bpf => "bpf",
        libc::SYS_setns => "setns",
        libc::SYS_unshare => "unshare",
        libc::SYS_mount => "mount",
        libc::SYS_memfd_create => "memfd_create",
        libc::SYS_io_uring_setup => "io_uring_setup",
        libc::SYS_process_vm_readv => "process_vm_readv",
        libc::SYS_process_vm_writev => "process_vm_writev",
        libc::SYS_pidfd_open => "pidfd_open",
        libc::SYS_pidfd_getfd => "pidfd_getfd",
        libc::SYS_setpriority => "setpriority",
        libc::SYS_sched_setscheduler => "sched_setscheduler",
        libc::SYS_sched_setaffinity => "sched_setaffinity",
        libc::SYS_epoll_create1 => "epoll_create1",
        libc::SYS_eventfd2 => "eventfd2",
        _ => "see `ausyscall` or the kernel's table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_its_numbers_and_never_overflows() {
        let mut line = Line { octets: [0; 224], length: 0 };
        for number in [0, 7, 41, 4_294_967_295] {
            line.number(number);
            line.push(b" ");
        }
        assert_eq!(&line.octets[..line.length], b"0 7 41 4294967295 ");
        line.push(&[b'x'; 500]);
        assert_eq!(line.length, 224);
        assert_eq!(name(libc::SYS_socket), "socket");
    }
}
