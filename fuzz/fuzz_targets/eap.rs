#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| vireo_fuzz::codecs::eap(data));
