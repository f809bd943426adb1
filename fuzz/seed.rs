//! `seed DIRECTORY`: writes each target's seeds to DIRECTORY/TARGET and prints the targets' names.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "corpus".into());
    for target in vireo_fuzz::TARGETS {
        let directory = Path::new(&directory).join(target.name);
        std::fs::create_dir_all(&directory)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{number}")), seed)?;
        }
        println!("{}", target.name);
    }
    Ok(())
}
