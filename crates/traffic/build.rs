//! Compiles the BPF programs of `bpf/` for the target, with clang.
//!
//! They share headers with the programs of the datapath.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed=../datapath/bpf/packet.h");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let object = PathBuf::from(variable("OUT_DIR")).join("frame_loop.bpf.o");
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let endian = if variable("CARGO_CFG_TARGET_ENDIAN") == "little" { "bpfel" } else { "bpfeb" };
    let result = Command::new("clang")
        .args(["-target", endian, "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-I../datapath/bpf"])
        .arg(format!("-I/usr/include/{architecture}-linux-gnu"))
        .args(["-c", "bpf/frame_loop.bpf.c", "-o"])
        .arg(&object)
        .status();
    match result {
        Ok(status) if status.success() => {}
        Ok(_) => {
            panic!("clang refused bpf/frame_loop.bpf.c: if a header is missing, run `make setup` (clang, libbpf-dev)")
        }
        Err(error) => panic!("cannot run clang ({error}): run `make setup`, or install clang and libbpf-dev"),
    }
}
