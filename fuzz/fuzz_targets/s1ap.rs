#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| vireo_fuzz::eps::s1ap(data));
