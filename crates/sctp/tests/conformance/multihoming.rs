//! Tests of associations with several paths, which only the kernel driver supports.

use crate::peer::{LIMIT, Peer, World, client_config, connect, run, server_config};
use crate::{sys, worlds};
use std::time::Duration;
use vireo_sctp::Config;

#[test]
#[ignore = "make test-kernel-sctp"]
fn kernel_association_survives_loss_of_path() {
    let world = worlds::kernel();
    let address = |n| world.address(n);
    let config = Config { addresses: vec![address(1), address(3)], ..server_config(&world, 38412) };
    let mut server = Peer::new(world.bind(&config));
    let config = Config { addresses: vec![address(2), address(4)], ..client_config(&world) };
    let mut client = Peer::new(world.bind(&config));
    server.echo = true;
    let assoc = connect(&mut server, &mut client, address(1), 38412);
    client.endpoint.send(assoc, 1, 60, b"before").expect("send");
    run(&mut [&mut server, &mut client], "an echo", LIMIT, |peers| peers[1].messages.len() == 1);
    // Time for the heartbeats that confirm the second path.
    crate::peer::idle(&mut [&mut server, &mut client], Duration::from_millis(1500));

    sys::ip(&[format!("address delete {}/32 dev lo", address(1))]);
    client.endpoint.send(assoc, 1, 60, b"after").expect("send");
    run(&mut [&mut server, &mut client], "an echo by the other path", LIMIT, |peers| peers[1].messages.len() == 2);
    assert_eq!((client.up.len(), server.up.len()), (1, 1));
}
