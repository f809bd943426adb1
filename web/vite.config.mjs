// Build of the web page: one script, one style sheet, names without hashes. The server adds ETags.
import { readFileSync } from "node:fs";
import { mock } from "./dev/mock.mjs";

const preact = JSON.parse(readFileSync("node_modules/preact/package.json", "utf8"));

// The MIT licence asks for its text beside copies of the work.
const licences = {
  name: "licences",
  generateBundle() {
    const text = readFileSync("node_modules/preact/LICENSE", "utf8");
    const source = `The script of this page contains Preact ${preact.version}:\n\n${text}`;
    this.emitFile({ type: "asset", fileName: "licences.txt", source });
  },
};

// That of crates/ops/src/api/web.rs, for `vite preview`.
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

export default {
  base: "/",
  plugins: [licences, mock],
  preview: { headers: { "Content-Security-Policy": policy } },
  build: {
    outDir: "../crates/ops/assets",
    emptyOutDir: true,
    target: ["chrome123", "firefox120", "safari17.5"],
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: {
      output: { entryFileNames: "app.js", chunkFileNames: "[name].js", assetFileNames: "app[extname]" },
    },
  },
};
