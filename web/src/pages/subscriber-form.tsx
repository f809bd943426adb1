// The form of one subscriber. K and OPc are write-only: an empty field keeps what is stored.
import { useState } from "preact/hooks";
import { errorText, request } from "../api";
import type { SubscribedDnn, SubscribedSlice, Subscriber } from "../types";
import { Check, Failure, Input, Select, notify } from "../ui";
import { sd } from "./subscribers";

const BPS = 1_000_000;

function emptyDnn(): SubscribedDnn {
  const ambr = { uplink_bps: 1000 * BPS, downlink_bps: 1000 * BPS };
  return { dnn: "internet", types: ["ipv4", "ipv6", "ipv4v6"], ambr, five_qi: 9, arp_priority: 8 };
}

function emptySlice(): SubscribedSlice {
  return { snssai: { sst: 1, sd: null }, default: false, dnns: [emptyDnn()] };
}

function emptySubscriber(): Subscriber {
  const ambr = { uplink_bps: 1000 * BPS, downlink_bps: 1000 * BPS };
  return { imsi: "", amf: "8000", subscription: { slices: [{ ...emptySlice(), default: true }], ambr } };
}

export function SubscriberForm(props: {
  isNew: boolean;
  known: Subscriber | undefined;
  etag: string | null;
  canSave: boolean;
  onSaved: (supi: string) => void;
}) {
  const [record, setRecord] = useState<Subscriber>(props.known ?? emptySubscriber());
  const [k, setK] = useState("");
  const [opc, setOpc] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const { subscription } = record;
  const setSubscription = (change: Partial<Subscriber["subscription"]>) =>
    setRecord({ ...record, subscription: { ...subscription, ...change } });
  const setSlice = (index: number, slice: SubscribedSlice) =>
    setSubscription({ slices: subscription.slices.map((old, i) => (i === index ? slice : old)) });

  async function save(): Promise<void> {
    setBusy(true);
    setError("");
    const { supi: known, ...own } = record;
    const json = { ...own, ...(k ? { k } : {}), ...(opc ? { opc } : {}) };
    const supi = known ?? `imsi-${record.imsi}`;
    try {
      if (props.isNew) await request("/v1/subscribers", { method: "POST", json });
      else await request(`/v1/subscribers/${encodeURIComponent(supi)}`, { method: "PUT", json, ifMatch: props.etag });
      setK("");
      setOpc("");
      notify(props.isNew ? `${supi} is added.` : `${supi} is changed.`);
      props.onSaved(supi);
    } catch (problem) {
      setError(errorText(problem));
    } finally {
      setBusy(false);
    }
  }

  return (
    <form
      class="card form"
      aria-label="Subscriber"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <fieldset disabled={!props.canSave}>
        <legend>Identity and keys</legend>
        <div class="grid">
          <Input
            label="IMSI"
            value={record.imsi}
            required
            readOnly={!props.isNew}
            pattern="[0-9]{6,15}"
            inputMode="numeric"
            hint="6 to 15 digits"
            onInput={(imsi) => setRecord({ ...record, imsi })}
          />
          <Input
            label="MSISDN"
            value={record.msisdn ?? ""}
            pattern="[0-9]{5,15}"
            inputMode="numeric"
            hint="5 to 15 digits with country code, or empty"
            onInput={(msisdn) => setRecord({ ...record, msisdn: msisdn === "" ? null : msisdn })}
          />
          {props.canSave ? (
            <>
              <Input
                label="K"
                value={k}
                type="password"
                autoComplete="new-password"
                required={props.isNew}
                pattern="[0-9A-Fa-f]{32}"
                hint={props.isNew ? "32 hexadecimal digits" : "empty: K stays as it is"}
                onInput={setK}
              />
              <Input
                label="OPc"
                value={opc}
                type="password"
                autoComplete="new-password"
                required={props.isNew || k !== ""}
                pattern="[0-9A-Fa-f]{32}"
                hint={props.isNew ? "32 hexadecimal digits" : "empty: OPc stays as it is"}
                onInput={setOpc}
              />
            </>
          ) : null}
          <Input
            label="Authentication management field"
            value={record.amf ?? ""}
            pattern="[0-9A-Fa-f]{4}"
            hint="4 hexadecimal digits; 8000 for 5G"
            onInput={(amf) => setRecord({ ...record, amf })}
          />
          <Select
            label="Allowed access"
            value={subscription.only ?? ""}
            options={[
              ["", "4G and 5G"],
              ["5g", "5G only"],
              ["4g", "4G only"],
            ]}
            onChange={(only) => {
              const { only: _, ...rest } = subscription;
              const restricted = only === "" ? rest : { ...rest, only: only as "4g" | "5g" };
              setRecord({ ...record, subscription: restricted });
            }}
          />
        </div>
        <fieldset class="inner">
          <legend>Rates of all sessions together</legend>
          <div class="grid">
            <Rates value={subscription.ambr} onChange={(ambr) => setSubscription({ ambr })} />
          </div>
        </fieldset>
      </fieldset>
      {subscription.slices.map((slice, index) => (
        <SliceFields
          key={`${subscription.slices.length} ${index}`}
          slice={slice}
          name={`Slice ${index + 1}`}
          disabled={!props.canSave}
          onChange={(own) => setSlice(index, own)}
          onRemove={
            subscription.slices.length > 1
              ? () => setSubscription({ slices: subscription.slices.filter((_, i) => i !== index) })
              : null
          }
        />
      ))}
      <Failure of={{ error }} />
      {props.canSave ? (
        <div class="buttons">
          <button type="submit" class="main" disabled={busy} aria-busy={busy}>
            {props.isNew ? "Add subscriber" : "Save changes"}
          </button>
          <button type="button" onClick={() => setSubscription({ slices: [...subscription.slices, emptySlice()] })}>
            Add slice
          </button>
        </div>
      ) : null}
    </form>
  );
}

function Rates(props: {
  value: { uplink_bps: number; downlink_bps: number };
  onChange: (value: { uplink_bps: number; downlink_bps: number }) => void;
}) {
  const set = (field: "uplink_bps" | "downlink_bps") => (text: string) => {
    const value = Number(text);
    if (Number.isFinite(value)) props.onChange({ ...props.value, [field]: Math.round(value * BPS) });
  };
  return (
    <>
      <Input
        label="Uplink (Mbit/s)"
        type="number"
        value={String(props.value.uplink_bps / BPS)}
        onInput={set("uplink_bps")}
      />
      <Input
        label="Downlink (Mbit/s)"
        type="number"
        value={String(props.value.downlink_bps / BPS)}
        onInput={set("downlink_bps")}
      />
    </>
  );
}

function SliceFields(props: {
  slice: SubscribedSlice;
  name: string;
  disabled: boolean;
  onChange: (slice: SubscribedSlice) => void;
  onRemove: (() => void) | null;
}) {
  const { slice, name } = props;
  const setDnn = (index: number, dnn: SubscribedDnn) =>
    props.onChange({ ...slice, dnns: slice.dnns.map((old, i) => (i === index ? dnn : old)) });
  const [sdText, setSdText] = useState(slice.snssai.sd === null ? "" : sd(slice.snssai.sd));
  const setSd = (text: string) => {
    setSdText(text);
    const value = Number.parseInt(text, 16);
    props.onChange({ ...slice, snssai: { ...slice.snssai, sd: Number.isNaN(value) ? null : value } });
  };
  return (
    <fieldset disabled={props.disabled}>
      <legend>{name}</legend>
      <div class="grid">
        <Input
          label="SST"
          type="number"
          value={String(slice.snssai.sst)}
          onInput={(text) => props.onChange({ ...slice, snssai: { ...slice.snssai, sst: Number(text) } })}
        />
        <Input
          label="SD"
          value={sdText}
          pattern="[0-9A-Fa-f]{6}"
          hint="6 hexadecimal digits, or empty"
          onInput={setSd}
        />
        <Check
          label="Default slice"
          checked={slice.default}
          onChange={(isDefault) => props.onChange({ ...slice, default: isDefault })}
        />
      </div>
      {slice.dnns.map((dnn, index) => (
        <DnnFields
          key={index}
          dnn={dnn}
          name={`Network ${index + 1} of ${name.toLowerCase()}`}
          onChange={(own) => setDnn(index, own)}
          onRemove={
            slice.dnns.length > 1
              ? () => props.onChange({ ...slice, dnns: slice.dnns.filter((_, i) => i !== index) })
              : null
          }
        />
      ))}
      {props.disabled ? null : (
        <div class="buttons">
          <button type="button" onClick={() => props.onChange({ ...slice, dnns: [...slice.dnns, emptyDnn()] })}>
            Add network to {name.toLowerCase()}
          </button>
          {props.onRemove ? (
            <button type="button" onClick={props.onRemove}>
              Remove {name.toLowerCase()}
            </button>
          ) : null}
        </div>
      )}
    </fieldset>
  );
}

function DnnFields(props: {
  dnn: SubscribedDnn;
  name: string;
  onChange: (dnn: SubscribedDnn) => void;
  onRemove: (() => void) | null;
}) {
  const { dnn, name } = props;
  return (
    <fieldset class="inner">
      <legend>{name}</legend>
      <div class="grid">
        <Input
          label="DNN"
          value={dnn.dnn}
          required
          onInput={(text) => props.onChange({ ...dnn, dnn: text })}
        />
        <Input
          label="Session types"
          value={dnn.types.join(",")}
          hint="ipv4, ipv6, ipv4v6; the default first"
          onInput={(text) => props.onChange({ ...dnn, types: text.split(",").map((type) => type.trim()) })}
        />
        <Input
          label="5QI"
          type="number"
          value={String(dnn.five_qi)}
          onInput={(text) => props.onChange({ ...dnn, five_qi: Number(text) })}
        />
        <Input
          label="ARP priority"
          type="number"
          value={String(dnn.arp_priority)}
          onInput={(text) => props.onChange({ ...dnn, arp_priority: Number(text) })}
        />
        <Rates value={dnn.ambr} onChange={(ambr) => props.onChange({ ...dnn, ambr })} />
        {props.onRemove ? (
          <button type="button" onClick={props.onRemove}>
            Remove {name.toLowerCase()}
          </button>
        ) : null}
      </div>
    </fieldset>
  );
}
