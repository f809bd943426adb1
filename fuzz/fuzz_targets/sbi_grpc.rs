#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| vireo_fuzz::sbi::in_grpc(data));
