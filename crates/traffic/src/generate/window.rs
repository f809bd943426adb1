//! Window of outstanding packets.

/// Sending times of the most recent packets by sequence number.
#[derive(Debug)]
pub(super) struct SendWindow {
    /// Sending time of each packet in ns. 0 = returned or expired.
    sent: Box<[u64]>,
    /// Sequence number of the next packet.
    next: u64,
    /// All packets with lower sequence numbers have returned or expired.
    oldest: u64,
    outstanding: u64,
}

impl SendWindow {
    /// Creates a window for at least `size` packets, rounded up to a power of two.
    pub(super) fn new(size: usize) -> Self {
        SendWindow { sent: vec![0; size.next_power_of_two()].into(), next: 0, oldest: 0, outstanding: 0 }
    }

    fn slot(&mut self, number: u64) -> &mut u64 {
        let mask = self.sent.len() as u64 - 1;
        &mut self.sent[(number & mask) as usize]
    }

    /// Returns the number of outstanding packets.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Returns the number of packets that may be sent.
    pub(super) fn room(&self) -> u64 {
        self.sent.len() as u64 - (self.next - self.oldest)
    }

    /// Returns the sequence number of a packet that is sent now. The window must not be full.
    pub(super) fn send(&mut self, now: u64) -> u64 {
        let number = self.next;
        *self.slot(number) = now.max(1);
        self.next += 1;
        self.outstanding += 1;
        number
    }

    /// Removes a returned packet. Returns its sending time, or `None` if it was not outstanding.
    pub(super) fn take(&mut self, number: u64) -> Option<u64> {
        if !(self.oldest..self.next).contains(&number) {
            return None;
        }
        let sent = std::mem::take(self.slot(number));
        if sent == 0 {
            return None;
        }
        self.outstanding -= 1;
        Some(sent)
    }

    /// Expires the packets that were sent before `before`.
    pub(super) fn expire(&mut self, before: u64) {
        while self.oldest < self.next {
            let sent = *self.slot(self.oldest);
            if sent >= before {
                return;
            }
            self.take(self.oldest);
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_once_and_in_time() {
        let mut window = SendWindow::new(4);
        let numbers: Vec<u64> = (1..=4).map(|now| window.send(now * 10)).collect();
        assert_eq!((numbers, window.outstanding(), window.room()), (vec![0, 1, 2, 3], 4, 0));
        assert_eq!((window.take(1), window.take(1), window.take(7)), (Some(20), None, None));
        window.expire(10);
        assert_eq!(window.outstanding(), 3, "none was sent before 10");
        window.expire(35);
        assert_eq!((window.outstanding(), window.room()), (1, 3), "1 is back, 0 and 2 are given up");
        assert_eq!((window.take(2), window.send(50), window.take(0)), (None, 4, None));
        assert_eq!((window.take(4), window.take(3), window.outstanding()), (Some(50), Some(40), 0));
    }
}
