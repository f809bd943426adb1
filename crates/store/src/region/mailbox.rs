//! Mailboxes: per-UE queues of events, each processed by one worker at a time.
//!
//! One event of a UE is in flight at a time. The worker that processes the UE's events is the
//! holder.
//!
//! The mailbox's word {holder 8, count 8, changes 16, newest packet 32} changes by one
//! compare-and-swap. Packets are linked from the newest to the oldest. Any worker adds packets at
//! the newest end. Only the holder takes the oldest out: it notes the packet as in flight first and
//! then unlinks it. So a worker that takes over from a dead holder finds the packet.

use super::mem::Ordering;
use super::pool::P_NEXT;
use super::{DeadWorker, Packet, Region, Slot, Worker};

const S_MAIL: usize = 2;
const S_FLIGHT: usize = 3;

/// Maximum number of waiting packets of a UE; a well-behaved UE has a few.
const MAX_PACKETS_PER_UE: u64 = 64;
/// Packets that [`Region::post_last`] may add beyond that.
const LAST: u64 = 8;
/// Maximum length of a list: all posters may pass the limit at the same time.
const MAX_LIST: usize = MAX_PACKETS_PER_UE as usize + 256;
/// Flag that keeps the word of a packet in flight from being 0.
const FLYING: u64 = 1 << 63;

/// Outcome of posting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The UE had no holder; the requested worker is its holder. The caller must notify that
    /// worker, which receives the packet by [`Region::next`].
    Holder,
    /// A worker already holds the UE and will process the packet.
    Queued,
}

/// The UE has too many waiting packets. The poster counts the dropped packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the UE's mailbox is full")]
pub struct MailboxFull;

#[derive(Clone, Copy)]
struct MailboxWord {
    holder: u64,
    count: u64,
    changes: u64,
    /// 1 + the packet number; 0 = no packet waits.
    newest: u64,
}

impl MailboxWord {
    fn from_word(word: u64) -> Self {
        MailboxWord {
            holder: word >> 56,
            count: word >> 48 & 0xff,
            changes: word >> 32 & 0xffff,
            newest: word & 0xffff_ffff,
        }
    }

    /// Returns how many packets wait: 0 if there is no newest packet, whatever the count contains.
    fn waiting(self) -> u64 {
        if self.newest == 0 { 0 } else { self.count }
    }

    fn word(self) -> u64 {
        self.holder << 56 | self.count << 48 | ((self.changes + 1) & 0xffff) << 32 | self.newest
    }
}

impl Region {
    fn mail(&self, slot: Slot) -> (u64, MailboxWord) {
        let word = self.word(self.slot(slot.0, S_MAIL)).load(Ordering::Acquire);
        (word, MailboxWord::from_word(word))
    }

    fn change(&self, slot: Slot, old: u64, new: MailboxWord) -> bool {
        let word = self.word(self.slot(slot.0, S_MAIL));
        word.compare_exchange(old, new.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the packet that is older than `packet`: 1 + its number, 0 = none.
    fn link(&self, packet: u64) -> u64 {
        let next = self.word(self.packet((packet as u32).wrapping_sub(1), P_NEXT)).load(Ordering::Acquire);
        if next > u64::from(self.packet_count()) {
            self.mem.fault();
            return 0;
        }
        next
    }

    /// Returns the packets of a mailbox from the newest on, as 1 + their numbers.
    ///
    /// The iterator also ends for a cyclic list.
    fn chain(&self, newest: u64) -> impl Iterator<Item = u64> {
        // The link of an item is read together with the item, so the iterator must not yield the 0
        // at the end.
        let item = |at: u64| (at != 0).then_some(at);
        let newest = if newest > u64::from(self.packet_count()) { 0 } else { newest };
        std::iter::successors(item(newest), move |at| item(self.link(*at))).take(MAX_LIST)
    }

    /// Returns true if a packet waits in a mailbox or is in flight there.
    ///
    /// Packets before it in the list are newer, so the holder removes them later. The links up to
    /// the packet do not change while it is in the list.
    pub(super) fn is_posted(&self, slot: Slot, packet: Packet) -> bool {
        if slot.0 as usize >= self.lay.slot_count {
            return false;
        }
        let mut at = self.mail(slot).1.newest;
        for _ in 0..=self.packet_count() {
            if at == 0 || at > u64::from(self.packet_count()) {
                break;
            }
            if at == u64::from(packet.number) + 1 {
                return self.is_live(packet);
            }
            at = self.link(at);
        }
        self.in_flight(slot) == Some(packet)
    }

    fn in_flight(&self, slot: Slot) -> Option<Packet> {
        let word = self.word(self.slot(slot.0, S_FLIGHT)).load(Ordering::Acquire);
        (word & FLYING != 0).then(|| Packet::from_item(word & !FLYING)).filter(|packet| self.is_live(*packet))
    }

    /// Returns the number of packets that wait in a UE's mailbox.
    pub fn waiting(&self, slot: Slot) -> u64 {
        self.mail(slot).1.waiting()
    }

    /// Posts a packet to a UE. If the UE has no holder, worker `holder` becomes its holder.
    ///
    /// Afterwards the packet belongs to the mailbox and is freed when it is finished.
    ///
    /// # Errors
    ///
    /// Returns an error if too many packets wait. The packet still belongs to the caller.
    pub fn post(&self, worker: &Worker, slot: Slot, packet: Packet, holder: u8) -> Result<Posted, MailboxFull> {
        self.post_within(MAX_PACKETS_PER_UE, worker, slot, (packet, holder))
    }

    /// Posts a packet as [`Region::post`] does, even if the mailbox has reached its normal limit.
    ///
    /// It is for an event that occurs once in the lifetime of a UE.
    ///
    /// # Errors
    ///
    /// Returns an error if several such events wait. The packet still belongs to the caller.
    pub fn post_last(&self, worker: &Worker, slot: Slot, packet: Packet, holder: u8) -> Result<Posted, MailboxFull> {
        self.post_within(MAX_PACKETS_PER_UE + LAST, worker, slot, (packet, holder))
    }

    fn post_within(
        &self,
        most: u64,
        worker: &Worker,
        slot: Slot,
        (packet, holder): (Packet, u8),
    ) -> Result<Posted, MailboxFull> {
        if self.mail(slot).1.waiting() >= most {
            return Err(MailboxFull);
        }
        self.set_posted(packet, slot, worker.number);
        loop {
            let (word, mail) = self.mail(slot);
            let holder = if mail.holder == 0 { u64::from(holder) + 1 } else { mail.holder };
            self.word(self.packet(packet.number, P_NEXT)).store(mail.newest, Ordering::Release);
            let newest = u64::from(packet.number) + 1;
            // Posters may pass the limit at the same time: the count has room for all workers
            // beyond it.
            let count = (mail.waiting() + 1).min(0xff);
            if self.change(slot, word, MailboxWord { holder, count, newest, ..mail }) {
                return Ok(if mail.holder == 0 { Posted::Holder } else { Posted::Queued });
            }
        }
    }

    /// Returns the packet in flight of a UE that the worker holds, else the oldest waiting packet.
    ///
    /// A dead holder may have processed the packet in flight: compare the sequence number of the
    /// commit record. A waiting packet is in flight from this call until [`Worker::finish`]. If no
    /// packet waits, the worker releases the UE.
    pub fn next(&self, worker: &Worker, slot: Slot) -> Option<Packet> {
        loop {
            let (word, mail) = self.mail(slot);
            if mail.holder != u64::from(worker.number) + 1 {
                return None;
            }
            if let Some(packet) = self.in_flight(slot) {
                // A dead holder may not have unlinked it.
                self.unlink(slot, packet);
                return Some(packet);
            }
            if mail.newest == 0 {
                if self.change(slot, word, MailboxWord { holder: 0, count: 0, ..mail }) {
                    return None;
                }
                continue;
            }
            let Some(packet) = self.oldest(mail) else {
                self.drop_list(slot, word, mail);
                continue;
            };
            let flying = FLYING | packet.to_item();
            self.word(self.slot(slot.0, S_FLIGHT)).store(flying, Ordering::Release);
            if self.unlink(slot, packet) {
                return Some(packet);
            }
        }
    }

    /// Returns the oldest waiting packet; `None` if the list is endless or contains an invalid
    /// number.
    fn oldest(&self, mail: MailboxWord) -> Option<Packet> {
        let (length, last) = self.chain(mail.newest).fold((0, 0), |(length, _), at| (length + 1, at));
        (length < MAX_LIST).then_some(last).filter(|last| *last != 0).map(|last| self.packet_now(last as u32 - 1))
    }

    /// Empties a mailbox with a corrupt list; its packets are lost. Only the holder may call this.
    fn drop_list(&self, slot: Slot, word: u64, mail: MailboxWord) {
        self.mem.fault();
        if self.change(slot, word, MailboxWord { count: 0, newest: 0, ..mail }) {
            let waiting: Vec<u64> = self.chain(mail.newest).collect();
            for at in waiting {
                self.free_packet(self.packet_now(at as u32 - 1));
            }
        }
    }

    /// Removes a packet from the list if it is the oldest one. Only the holder may call this.
    fn unlink(&self, slot: Slot, packet: Packet) -> bool {
        let place = u64::from(packet.number) + 1;
        loop {
            let (word, mail) = self.mail(slot);
            let count = mail.count.saturating_sub(1);
            if mail.newest == place {
                if self.change(slot, word, MailboxWord { newest: 0, count, ..mail }) {
                    return true;
                }
                continue;
            }
            let Some(at) = self.chain(mail.newest).find(|at| self.link(*at) == place) else { return false };
            self.word(self.packet(at as u32 - 1, P_NEXT)).store(0, Ordering::Release);
            return self.less(slot);
        }
    }

    fn less(&self, slot: Slot) -> bool {
        loop {
            let (word, mail) = self.mail(slot);
            if self.change(slot, word, MailboxWord { count: mail.count.saturating_sub(1), ..mail }) {
                return true;
            }
        }
    }

    /// Returns the UEs that a dead worker held.
    ///
    /// It scans every slot. A host that assigns UEs only by rings does not need it: each held UE is
    /// in a ring of its worker. The UE waits there or is in flight (see [`super::Ring::requeue`]).
    pub fn held_by(&self, dead: &DeadWorker) -> impl Iterator<Item = Slot> {
        let holder = u64::from(dead.number) + 1;
        (0..self.lay.slot_count as u32).map(Slot).filter(move |slot| self.mail(*slot).1.holder == holder)
    }

    /// Transfers a UE from its dead holder to another worker.
    ///
    /// The caller must notify the new holder, which continues by [`Region::next`]. Returns false if
    /// the dead worker does not hold the UE.
    pub fn take_over(&self, slot: Slot, dead: &DeadWorker, holder: u8) -> bool {
        loop {
            let (word, mail) = self.mail(slot);
            if mail.holder != u64::from(dead.number) + 1 {
                return false;
            }
            // The dead worker may have removed a packet without counting it.
            let count = self.chain(mail.newest).take(0xff).count() as u64;
            if self.change(slot, word, MailboxWord { holder: u64::from(holder) + 1, count, ..mail }) {
                return true;
            }
        }
    }

    /// Returns true if no worker holds the UE of a slot and no packet waits for it.
    pub fn is_idle_and_empty(&self, slot: Slot) -> bool {
        self.is_idle(slot.0)
    }

    pub(super) fn is_idle(&self, slot: u32) -> bool {
        let mail = self.mail(Slot(slot)).1;
        mail.holder == 0 && mail.newest == 0
    }

    /// Holds an idle UE on behalf of a dead worker, if `still` is true then.
    ///
    /// Returns whether it holds the UE. The error is the number of the worker that already holds
    /// it.
    pub(super) fn hold_idle(&self, slot: Slot, dead: u8, still: impl Fn() -> bool) -> Result<bool, u8> {
        loop {
            // A holder in between would have changed the mailbox word. So the result of `still` is
            // valid when the exchange succeeds.
            let (word, mail) = self.mail(slot);
            match mail.holder.checked_sub(1) {
                Some(holder) => return Err(holder as u8),
                None if !still() => return Ok(false),
                None if self.change(slot, word, MailboxWord { holder: u64::from(dead) + 1, ..mail }) => {
                    return Ok(true);
                }
                None => {}
            }
        }
    }

    /// Releases a UE that [`Region::hold_idle`] held, and drops the packets that arrived since.
    /// They were for a removed UE.
    pub(super) fn release_idle(&self, slot: Slot) {
        loop {
            let (word, mail) = self.mail(slot);
            if self.change(slot, word, MailboxWord { holder: 0, count: 0, newest: 0, ..mail }) {
                let waiting: Vec<u64> = self.chain(mail.newest).collect();
                for at in waiting {
                    self.free_packet(self.packet_now(at as u32 - 1));
                }
                return;
            }
        }
    }
}

impl Worker {
    /// Frees the packet in flight of a UE that the worker holds, and returns the next one.
    ///
    /// The step must be committed and its effects passed on. If no packet waits, the worker
    /// releases the UE.
    pub fn finish(&mut self, slot: Slot) -> Option<Packet> {
        if self.region.mail(slot).1.holder != u64::from(self.number) + 1 {
            return None;
        }
        if let Some(packet) = self.region.in_flight(slot) {
            self.free(packet);
        }
        self.region.word(self.region.slot(slot.0, S_FLIGHT)).store(0, Ordering::Release);
        self.region.next(self, slot)
    }
}
