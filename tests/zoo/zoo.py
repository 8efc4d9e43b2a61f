"""Every network of the zoo by name."""

from __future__ import annotations

from zoo import attention_cnn, gnn, mlp, mobilenet, raw, recurrent, resnet, several, shared, textcnn, torch_transformer
from zoo import from_transformers as hf
from zoo import from_transformers_pairs as hf_pairs
from zoo import from_transformers_vision as hf_vision
from zoo.alexnet import alexnet
from zoo.bert import bert
from zoo.conv1d import audio_net
from zoo.conv3d import c3d
from zoo.convnext import convnext
from zoo.densenet import densenet
from zoo.efficientnet import efficientnet
from zoo.entry import Entry, floats, graphs, image, sentence_pairs, sequence_to_sequence, tokens
from zoo.googlenet import googlenet
from zoo.gpt import gpt
from zoo.llama import llama
from zoo.mixer import mixer
from zoo.preact_resnet import preact_resnet18
from zoo.regnet import regnet_y
from zoo.se_resnet import se_resnet
from zoo.segmentation import segmentation
from zoo.shufflenet import shufflenet_v2
from zoo.squeezenet import squeezenet
from zoo.super_resolution import super_resolution
from zoo.swin import swin
from zoo.tcn import tcn
from zoo.unet import unet
from zoo.vgg import vgg11
from zoo.vit import vit
from zoo.wide_resnet import wide_resnet16

CONVOLUTIONAL: dict[str, Entry] = {
    "vgg11": Entry(vgg11, image()),
    "alexnet": Entry(alexnet, image(64)),
    "resnet18": Entry(resnet.resnet18, image()),
    "resnet50": Entry(resnet.resnet50, image()),
    "wide_resnet16": Entry(wide_resnet16, image()),
    "resnext": Entry(resnet.resnext, image()),
    "se_resnet": Entry(se_resnet, image()),
    "preact_resnet18": Entry(preact_resnet18, image()),
    "densenet": Entry(densenet, image()),
    "googlenet": Entry(googlenet, image()),
    "squeezenet": Entry(squeezenet, image(64)),
    "mobilenet_v2": Entry(mobilenet.mobilenet_v2, image(64)),
    "mobilenet_v3": Entry(mobilenet.mobilenet_v3, image()),
    "efficientnet": Entry(efficientnet, image()),
    "shufflenet_v2": Entry(shufflenet_v2, image()),
    "convnext": Entry(convnext, image(), normalised_over_channels=True),
    "regnet_y": Entry(regnet_y, image()),
    "cbam_net": Entry(attention_cnn.cbam_net, image(), normalised_over_channels=True),
    "eca_net": Entry(attention_cnn.eca_net, image(), channels_in_order=True),
    "unet": Entry(unet, image()),
    "segmentation": Entry(segmentation, image()),
    "super_resolution": Entry(super_resolution, image(12)),
    "audio_net": Entry(audio_net, floats((1, 400))),
    "tcn": Entry(tcn, floats((6, 40))),
    "c3d": Entry(c3d, floats((3, 8, 16, 16))),
    "recurrent_conv": Entry(shared.recurrent_conv, image()),
    "image_and_table": Entry(
        several.image_and_table, floats((3, 16, 16), (6,)), normalised_over_channels=True, channels_in_order=True
    ),
    "detector": Entry(several.detector, image()),
    "vae": Entry(several.vae, floats((1, 28, 28)), most=3.2),
}
PERCEPTRONS: dict[str, Entry] = {
    "mlp": Entry(mlp.mlp, floats((1, 28, 28)), most=3.5),
    "gated_mlp": Entry(mlp.gated_mlp, floats((20,))),
    "mixer": Entry(mixer, image(), normalised_over_channels=True),
    "tied_autoencoder": Entry(shared.tied_autoencoder, floats((40,)), most=2.9),
    "raw_mlp": Entry(raw.raw_mlp, floats((20,)), most=2.0),
    "experts": Entry(raw.experts, floats((6, 12))),
    "gcn": Entry(gnn.gcn, graphs),
    "gat": Entry(gnn.gat, graphs),
}
SEQUENCES: dict[str, Entry] = {
    "vit": Entry(vit, image(), normalised_over_channels=True),
    "attention_vit": Entry(torch_transformer.attention_vit, image(), normalised_over_channels=True),
    "encoder_vit": Entry(torch_transformer.encoder_vit, image(), normalised_over_channels=True),
    "translator": Entry(torch_transformer.translator, tokens(60, 9, 7), normalised_over_channels=True),
    "swin": Entry(swin, image(), normalised_over_channels=True),
    "bert": Entry(bert, sentence_pairs, normalised_over_channels=True),
    "gpt": Entry(gpt, tokens(96, 16), normalised_over_channels=True),
    "llama": Entry(llama, tokens(96, 16), normalised_over_channels=True),
    "lstm_tagger": Entry(recurrent.lstm_tagger, tokens(80, 11)),
    "gru_classifier": Entry(recurrent.gru_classifier, floats((9, 12))),
    "plain_rnn": Entry(recurrent.plain_rnn, floats((10, 12))),
    "cell_loop": Entry(recurrent.cell_loop, tokens(60, 7)),
    "text_cnn": Entry(textcnn.text_cnn, tokens(60, 14)),
    "text_cnn_1d": Entry(textcnn.text_cnn_1d, tokens(60, 14)),
}
FROM_TRANSFORMERS: dict[str, Entry] = {
    "hf_bert": Entry(hf.bert, tokens(96, 12), normalised_over_channels=True),
    "hf_distilbert": Entry(hf.distilbert, tokens(96, 12), normalised_over_channels=True),
    "hf_roberta": Entry(hf.roberta, tokens(96, 12), normalised_over_channels=True),
    "hf_electra": Entry(hf.electra, tokens(96, 12), normalised_over_channels=True),
    "hf_albert": Entry(hf.albert, tokens(96, 12), normalised_over_channels=True),
    "hf_gpt2": Entry(hf.gpt2, tokens(96, 12), normalised_over_channels=True),
    "hf_gpt2_classifier": Entry(hf.gpt2_classifier, tokens(96, 12), normalised_over_channels=True),
    "hf_opt": Entry(hf.opt, tokens(96, 12), normalised_over_channels=True),
    "hf_llama": Entry(hf.llama, tokens(96, 12), normalised_over_channels=True),
    "hf_mistral": Entry(hf.mistral, tokens(96, 12), normalised_over_channels=True),
    "hf_qwen2": Entry(hf.qwen2, tokens(96, 12), normalised_over_channels=True),
    "hf_t5": Entry(hf_pairs.t5, sequence_to_sequence, normalised_over_channels=True),
    "hf_bart": Entry(hf_pairs.bart, sequence_to_sequence, normalised_over_channels=True),
    "hf_vit": Entry(hf_vision.vit, image(), normalised_over_channels=True),
    "hf_deit": Entry(hf_vision.deit, image(), normalised_over_channels=True),
    "hf_swin": Entry(hf_vision.swin, image(), normalised_over_channels=True),
    "hf_convnext": Entry(hf_vision.convnext, image(), normalised_over_channels=True),
    "hf_resnet": Entry(hf_vision.resnet, image()),
    "hf_mobilenet_v2": Entry(hf_vision.mobilenet_v2, image()),
    "hf_regnet": Entry(hf_vision.regnet, image()),
    "hf_segformer": Entry(hf_vision.segformer, image(), normalised_over_channels=True),
}
ZOO: dict[str, Entry] = {**CONVOLUTIONAL, **PERCEPTRONS, **SEQUENCES, **FROM_TRANSFORMERS}
