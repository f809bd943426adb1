//! A mailbox for each UE: one event of a UE is in flight at a time, and who works on it is the holder.
//!
//! The mailbox's word {holder 8, count 8, changes 16, newest packet 32} changes by one compare-and-swap. Packets are
//! linked from the newest to the oldest. Anybody adds one at the newest end; only the holder takes the oldest out: it
//! notes it as in flight first and unlinks it then, so that whoever takes over from a dead holder finds it.

use super::mem::Ordering;
use super::pool::P_NEXT;
use super::{DeadWorker, Packet, Region, Slot, Worker};

const S_MAIL: usize = 2;
const S_FLIGHT: usize = 3;

/// Packets that a UE may have waiting: an honest one has a few.
const MOST: u64 = 64;
/// Packets that [`Region::post_last`] may add.
const LAST: u64 = 8;
/// Packets that a list can have: all posters may meet at the limit.
const LONGEST: usize = MOST as usize + 256;
/// So that the word of a packet in flight is never 0.
const FLYING: u64 = 1 << 63;

/// What became of a packet that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The UE had no holder, and has the one given now: it is to be told, and gets the packet by [`Region::next`].
    Holder,
    /// A worker holds the UE, and comes to it.
    Queued,
}

/// The UE has too many packets waiting; who posts counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the UE's mailbox is full")]
pub struct MailboxFull;

#[derive(Clone, Copy)]
struct MailboxWord {
    holder: u64,
    count: u64,
    changes: u64,
    /// 1 + its number; 0 = none.
    newest: u64,
}

impl MailboxWord {
    fn of(word: u64) -> Self {
        MailboxWord {
            holder: word >> 56,
            count: word >> 48 & 0xff,
            changes: word >> 32 & 0xffff,
            newest: word & 0xffff_ffff,
        }
    }

    /// How many packets wait: none where none is the newest, whatever the count says.
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
        (word, MailboxWord::of(word))
    }

    fn change(&self, slot: Slot, old: u64, new: MailboxWord) -> bool {
        let word = self.word(self.slot(slot.0, S_MAIL));
        word.compare_exchange(old, new.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The packet that is older than one: 1 + its number, 0 = none.
    fn link(&self, packet: u64) -> u64 {
        let next = self.word(self.packet((packet as u32).wrapping_sub(1), P_NEXT)).load(Ordering::Acquire);
        if next > u64::from(self.packet_count()) {
            self.mem.fault();
            return 0;
        }
        next
    }

    /// The packets of a mailbox from the newest on, as 1 + their numbers. A list that comes back to itself ends.
    fn chain(&self, newest: u64) -> impl Iterator<Item = u64> {
        // The link of an item is read with it, so the end of the list is no item.
        let item = |at: u64| (at != 0).then_some(at);
        let newest = if newest > u64::from(self.packet_count()) { 0 } else { newest };
        std::iter::successors(item(newest), move |at| item(self.link(*at))).take(LONGEST)
    }

    /// Whether a packet waits in a mailbox or is in flight there. Packets before it in the list are newer, so they are
    /// not taken out before it is: the way to it stays as it is as long as it is there.
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

    /// Posts a packet to a UE, whose holder is to be worker `holder` if it has none. Afterwards the packet is the
    /// mailbox's, and is freed when it is finished.
    ///
    /// # Errors
    ///
    /// When too many wait; the packet is still the caller's.
    pub fn post(&self, worker: &Worker, slot: Slot, packet: Packet, holder: u8) -> Result<Posted, MailboxFull> {
        self.post_within(MOST, worker, slot, (packet, holder))
    }

    /// As [`Region::post`], also when as many packets wait as may: for an event that there is one of in a UE's life.
    ///
    /// # Errors
    ///
    /// When there are several such; the packet is still the caller's.
    pub fn post_last(&self, worker: &Worker, slot: Slot, packet: Packet, holder: u8) -> Result<Posted, MailboxFull> {
        self.post_within(MOST + LAST, worker, slot, (packet, holder))
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
            // Posters may meet here at the limit: the count has room for all workers beyond it.
            let count = (mail.waiting() + 1).min(0xff);
            if self.change(slot, word, MailboxWord { holder, count, newest, ..mail }) {
                return Ok(if mail.holder == 0 { Posted::Holder } else { Posted::Queued });
            }
        }
    }

    /// The packet in flight of a UE that the worker holds, which a dead holder may have carried out (the record's input
    /// sequence number says so); else the oldest that waits, which is in flight from now until [`Worker::finish`]. With
    /// none, the worker holds the UE no more.
    pub fn next(&self, worker: &Worker, slot: Slot) -> Option<Packet> {
        loop {
            let (word, mail) = self.mail(slot);
            if mail.holder != u64::from(worker.number) + 1 {
                return None;
            }
            if let Some(packet) = self.in_flight(slot) {
                // A dead holder may not have come to unlinking it.
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

    /// The oldest packet that waits; `None` if the list has no end, or leads to what is no packet.
    fn oldest(&self, mail: MailboxWord) -> Option<Packet> {
        let (length, last) = self.chain(mail.newest).fold((0, 0), |(length, _), at| (length + 1, at));
        (length < LONGEST).then_some(last).filter(|last| *last != 0).map(|last| self.packet_now(last as u32 - 1))
    }

    /// Empties a mailbox whose list is no list, as only its holder does. What was in it is lost.
    fn drop_list(&self, slot: Slot, word: u64, mail: MailboxWord) {
        self.mem.fault();
        if self.change(slot, word, MailboxWord { count: 0, newest: 0, ..mail }) {
            let waiting: Vec<u64> = self.chain(mail.newest).collect();
            for at in waiting {
                self.free_packet(self.packet_now(at as u32 - 1));
            }
        }
    }

    /// Takes the oldest packet out of the list, if it is this one. Only the holder does.
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

    /// The UEs that a dead worker held. It looks at every slot: a host that gives out UEs by rings alone does not need it,
    /// since each UE that a worker holds is in a ring of its, waiting or in flight (see [`super::Ring::requeue`]).
    pub fn held_by(&self, dead: &DeadWorker) -> impl Iterator<Item = Slot> {
        let holder = u64::from(dead.number) + 1;
        (0..self.lay.slot_count as u32).map(Slot).filter(move |slot| self.mail(*slot).1.holder == holder)
    }

    /// Takes a UE from its dead holder and gives it to another, who is told and goes on by [`Region::next`]. False if it
    /// was not the dead one's any more.
    pub fn take_over(&self, slot: Slot, dead: &DeadWorker, holder: u8) -> bool {
        loop {
            let (word, mail) = self.mail(slot);
            if mail.holder != u64::from(dead.number) + 1 {
                return false;
            }
            // The dead one may have died before it counted what it took out.
            let count = self.chain(mail.newest).take(0xff).count() as u64;
            if self.change(slot, word, MailboxWord { holder: u64::from(holder) + 1, count, ..mail }) {
                return true;
            }
        }
    }

    /// Whether nobody holds the UE of a slot and nothing waits for it.
    pub fn is_idle_and_empty(&self, slot: Slot) -> bool {
        self.is_idle(slot.0)
    }

    pub(super) fn is_idle(&self, slot: u32) -> bool {
        let mail = self.mail(Slot(slot)).1;
        mail.holder == 0 && mail.newest == 0
    }

    /// Holds a UE that nobody holds, in the name of a dead worker, if `still` is true of it then; else says who holds it.
    pub(super) fn hold_idle(&self, slot: Slot, dead: u8, still: impl Fn() -> bool) -> Result<bool, u8> {
        loop {
            // Whoever held it in between would have changed the mailbox: what is true now is true when it is held.
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

    /// Holds a UE no more that [`Region::hold_idle`] held. Packets that came meanwhile were for one who is gone.
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
    /// The packet in flight of a UE that the worker holds is done with, committed and its effects on their way: frees it
    /// and returns the next; with none, the worker holds the UE no more.
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
