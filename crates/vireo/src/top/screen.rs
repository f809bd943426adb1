//! Screen of `vireo top` on a terminal.
//!
//! Runs until `q`, Escape or Ctrl-C. The arrow keys scroll the table of NFs.

use super::Args;
use super::sample::ApiSample;
use super::view::{Table, View};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{self, Block, Borders, Paragraph, Row};
use std::time::Instant;
use vireo_client::Api;
use vireo_config::Failure;

/// Lines per page key.
const PAGE: usize = 10;

/// Shows the state of the core until the user quits.
pub(super) fn run(asked: (&Args, &Api), first: ApiSample) -> Result<(), Failure> {
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, asked, first);
    ratatui::try_restore()?;
    result
}

fn watch(terminal: &mut ratatui::DefaultTerminal, (args, api): (&Args, &Api), first: ApiSample) -> Result<(), Failure> {
    let (mut view, mut before) = (View::new(&first, &first), first);
    let mut due = Instant::now() + args.interval;
    let mut offset = 0;
    // If the core does not answer, the last view stays, with the reason.
    let mut trouble = None;
    loop {
        terminal.draw(|frame| draw(frame, &view, trouble.as_deref(), &mut offset))?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    KeyCode::Down => offset += 1,
                    KeyCode::Up => offset = offset.saturating_sub(1),
                    KeyCode::PageDown => offset += PAGE,
                    KeyCode::PageUp => offset = offset.saturating_sub(PAGE),
                    KeyCode::Home => offset = 0,
                    _ => {}
                }
            }
            continue;
        }
        due = Instant::now() + args.interval;
        match ApiSample::take(api) {
            Ok(now) => {
                view = View::new(&before, &now);
                (before, trouble) = (now, None);
            }
            Err(failure) => trouble = Some(failure.to_string()),
        }
    }
}

fn draw(frame: &mut Frame<'_>, view: &View, trouble: Option<&str>, offset: &mut usize) {
    let height = |table: &Table| table.lines.len() as u16 + 2;
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(view.totals.len() as u16),
        Constraint::Max(height(&view.objectives)),
        Constraint::Min(4),
        Constraint::Max(height(&view.workers)),
    ])
    .split(frame.area());
    let note = match trouble {
        Some(trouble) => Span::from(format!("   {trouble}")).red(),
        None => Span::from("   q quits, arrow keys move the network functions").dim(),
    };
    frame.render_widget(Line::from(vec![view.title.clone().bold(), note]), areas[0]);
    let width = view.totals.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let totals = view.totals.iter().map(|(name, value)| {
        Line::from(vec![Span::from(format!("{name:<width$}  ")).dim(), Span::from(value.clone())])
    });
    frame.render_widget(Paragraph::new(totals.collect::<Vec<_>>()), areas[1]);
    lines(frame, areas[2], &view.objectives, 0);
    let shown = usize::from(areas[3].height.saturating_sub(2));
    *offset = (*offset).min(view.nfs.lines.len().saturating_sub(shown));
    lines(frame, areas[3], &view.nfs, *offset);
    lines(frame, areas[4], &view.workers, 0);
}

fn lines(frame: &mut Frame<'_>, area: Rect, table: &Table, offset: usize) {
    let width = |column: usize| {
        let cells = table.lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(table.header[column].len()) as u16
    };
    let widths: Vec<u16> = (0..table.header.len()).map(width).collect();
    let marked = |at: usize| if table.marked.get(at) == Some(&true) { Style::new().yellow() } else { Style::new() };
    let rows = table.lines.iter().enumerate().skip(offset).map(|(at, line)| Row::new(line.clone()).style(marked(at)));
    let title = match table.lines.len() {
        0 => format!("{}: none yet", table.name),
        count => format!("{} ({count})", table.name),
    };
    let widget = widgets::Table::new(rows, widths)
        .header(Row::new(table.header.to_vec()).bold())
        .column_spacing(2)
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(widget, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, offset: &mut usize, trouble: Option<&str>) -> Vec<String> {
        let [before, now] = super::super::view::tests::samples();
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &View::new(&before, &now), trouble, offset)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn everything_has_its_place() {
        let lines = drawn(120, 40, &mut 0, None);
        assert!(lines[0].starts_with("vireo 0.2.0, up 1 min q quits"), "{lines:#?}");
        for line in ["phones handover active 3 2 0.250 12 us 200 1400 2 14", "3 14 0.0 % 1 1 4 200"] {
            assert!(lines.iter().any(|l| l == line), "{line}: {lines:#?}");
        }
    }

    #[test]
    fn small_terminal_scrolls() {
        for size in [(1, 1), (20, 5), (80, 12)] {
            drawn(size.0, size.1, &mut 3, None);
        }
        let mut offset = 99;
        let lines = drawn(100, 22, &mut offset, Some("no core answers"));
        assert!(lines[0].contains("no core answers"), "{lines:#?}");
        assert!(offset < 4, "it ends with the last line: {offset}");
        assert!(lines.iter().any(|l| l.starts_with("phones handover idle 3")), "{lines:#?}");
    }
}
