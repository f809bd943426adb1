//! Slices of the user plane with their own data workers.

use crate::file::{self, File, PacketDriver};
use crate::problems::{Problems, unique};
use vireo_core::config::{DnnConfig, SliceConfig, SliceProfile};
use vireo_types::Dnn;
use vireo_upf::{DataSlice, LeanSlice, SLICE_WORKERS, SliceWorkers};

/// Returns the slices in the order of the core's configuration, or none if no slice has its own
/// workers.
pub(super) fn data(file: &File, slices: &[SliceConfig], dnns: &[DnnConfig], problems: &mut Problems) -> Vec<DataSlice> {
    let written = file.slices();
    let has_own = |slice: &file::Slice| slice.data_workers > 0 || !slice.data_cores.is_empty();
    let Some((first, _)) = written.iter().find(|(_, slice)| has_own(slice)) else { return vec![] };
    let key = format!("slice.{first}.data-workers");
    let driver = file.datapath.driver;
    let steers = driver != PacketDriver::AfXdp;
    problems.check(
        steers,
        &key,
        "driver = \"af-xdp\" hands no packets to the workers of slices, because all sockets of a queue share one fill ring, \
         which takes one writer: choose another driver, or remove the key",
    );
    problems.check(
        file.datapath.workers == 1 && file.datapath.module.is_empty() && file.datapath.fanout == file::Fanout::Hash,
        &key,
        "the workers of slices take the place of datapath.workers, datapath.fanout and modules: remove these",
    );
    let mut all = 0;
    let known = slices.iter().filter_map(|slice| Some((slice, written.get(&slice.name)?)));
    let data = known.map(|(slice, written)| {
        let cores = &written.data_cores;
        let workers = written.data_workers.max(cores.len()).max(1);
        let key = |name: &str| format!("slice.{}.{name}", slice.name);
        problems.check(
            cores.is_empty() || cores.len() == workers,
            &key("data-cores"),
            "as many processors as data-workers are allowed, or none",
        );
        problems.check(unique(cores), &key("data-cores"), "a processor is there twice");
        problems.check(cores.iter().all(|core| *core < 1024), &key("data-cores"), "processors are 0 to 1023");
        all += workers;
        DataSlice {
            name: slice.name.clone(),
            snssai: Some(slice.snssai),
            dnns: served_dnns(slice, dnns),
            workers: SliceWorkers { workers, cores: cores.clone() },
        }
    });
    let data: Vec<DataSlice> = data.collect();
    let cores: Vec<usize> = data.iter().flat_map(|slice| slice.workers.cores.clone()).collect();
    let own = cores.len() == all && unique(&cores);
    problems.check(
        driver != PacketDriver::Xdp || own,
        &key,
        "driver = \"xdp\" runs on processors: give each slice data-cores that no other has",
    );
    problems.check(
        all <= SLICE_WORKERS,
        &key,
        format_args!("all slices together have at most {SLICE_WORKERS} data workers, and each has one at least"),
    );
    data
}

/// Returns the slices with the IoT profile.
pub(super) fn lean(slices: &[SliceConfig], dnns: &[DnnConfig]) -> Vec<LeanSlice> {
    let simple = slices.iter().filter(|slice| slice.profile == SliceProfile::Iot);
    let is_only_slice = slices.len() == 1;
    simple
        .map(|slice| LeanSlice { snssai: Some(slice.snssai), dnns: served_dnns(slice, dnns), is_only_slice })
        .collect()
}

/// Returns the data networks that only this slice reaches. A session in such a data network belongs
/// to the slice, whatever S-NSSAI the control plane sends.
fn served_dnns(slice: &SliceConfig, dnns: &[DnnConfig]) -> Vec<Dnn> {
    dnns.iter().filter(|dnn| dnn.slices == [slice.snssai]).map(|dnn| dnn.name.clone()).collect()
}
