// Dark or light: that of the system, unless the user chose one.
import { useState } from "preact/hooks";

const KEY = "vireo.theme";
type Choice = "system" | "light" | "dark";

function stored(): Choice {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "system";
}

export function applyTheme(choice: Choice = stored()): void {
  if (choice === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = choice;
}

export function Theme() {
  const [choice, setChoice] = useState(stored());
  return (
    <select
      aria-label="Colours"
      value={choice}
      onChange={(event) => {
        const next = event.currentTarget.value as Choice;
        if (next === "system") localStorage.removeItem(KEY);
        else localStorage.setItem(KEY, next);
        setChoice(next);
        applyTheme(next);
      }}
    >
      <option value="system">System colours</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}
